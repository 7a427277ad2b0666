#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "common/base/status.h"
#include "common/model/bf16_layers.h"
#include "common/model/decoder_slice.h"
#include "common/model/model_spec.h"
#include "common/model/weight_source.h"
#include "kernels/ops.h"

namespace baton {

// Packed weights of the index of tokens (IndexShape), whole on each rank.
struct IndexWeights {
  std::unique_ptr<Matrix> q;        // [heads · dim][latent of queries]
  std::unique_ptr<Matrix> k;        // [dim][hidden]
  std::unique_ptr<Vector> k_norm;   // LayerNorm: [weight | bias]
  std::unique_ptr<Matrix> weights;  // [heads][hidden]
};

// Packed weights of multi-head latent attention. What computes the latents is whole on each rank.
struct LatentWeights {
  std::unique_ptr<Matrix> q_down;  // [latent of queries][hidden], or null
  std::unique_ptr<Vector> q_down_bias;
  std::unique_ptr<Vector> q_norm;
  std::unique_ptr<Matrix> q;        // [heads · head_dim][latent of queries, or hidden]
  std::unique_ptr<Matrix> kv_down;  // [LatentSpec::width()][hidden]
  std::unique_ptr<Vector> kv_down_bias;
  std::unique_ptr<Vector> kv_norm;
  std::vector<std::unique_ptr<Matrix>> keys;    // by head: LatentQueryArgs::keys
  std::vector<std::unique_ptr<Matrix>> values;  // by head: LatentValueArgs::values
  IndexWeights index;                           // null without an index
};

// Packed weights of the recurrent part of a layer (RecurrentArgs), of the loaded key heads. Null:
// the rule of the model does not have them.
struct RecurrentWeights {
  std::unique_ptr<Vector> input_norm;  // in place of attention_norm, if its factor is another one
  std::unique_ptr<Matrix> input;       // [input_columns()][hidden]
  std::unique_ptr<Matrix> gates;       // [gate_columns()][hidden, or latent_rank]
  std::unique_ptr<Matrix> time_down;   // [latent_rank][hidden], or of v
  std::unique_ptr<Vector> time_norm;
  std::unique_ptr<Matrix> k;  // Mamba: [key_dim][v], with a norm
  std::unique_ptr<Vector> k_norm;
  std::unique_ptr<Matrix> q;
  std::unique_ptr<Vector> q_norm;
  std::unique_ptr<Matrix> gate_down;  // [latent_rank][hidden]
  std::unique_ptr<Matrix> gate;       // of the output: [v][latent_rank], Mamba: [v][hidden]
  std::unique_ptr<Vector> convolution;
  std::unique_ptr<Vector> convolution_bias;
  std::unique_ptr<Vector> decay;
  std::unique_ptr<Vector> time_bias;
  std::unique_ptr<Vector> skip;
  std::unique_ptr<Vector> norm;
  std::unique_ptr<Matrix> output;  // [hidden][v]
};

// Packed weights of one transformer layer. Dense layers have gate_up and down; MoE layers have the
// router and the expert fields. Norms, biases and all else that the model does not have are null.
// The norms of the residual have the weight, and behind it the bias, if any. In shapes,
// heads, kv_heads, intermediate and vocab are numbers of the loaded slice, and the expert fields
// have the loaded experts; hidden and the router's experts are those of the model. With
// DecoderSlice::hidden, attention_output and down have its rows and all columns.
struct LayerWeights {
  std::unique_ptr<Vector> attention_norm;
  std::unique_ptr<Matrix> qkv;  // [(heads + 2 · kv_heads) · head_dim][hidden]
  std::unique_ptr<Vector> qkv_bias;
  std::unique_ptr<Vector> q_norm;
  std::unique_ptr<Vector> k_norm;
  std::unique_ptr<Vector> qk_norm;           // [q | k] of all heads: kProjection, kHeadLayer
  std::unique_ptr<Vector> sinks;             // [heads]
  LatentWeights latent;                      // in place of qkv
  RecurrentWeights recurrent;                // in place of attention, or beside it
  std::unique_ptr<Vector> kv_scales;         // for an FP8 KV cache (kv_scales.h)
  std::unique_ptr<Matrix> attention_gate;    // [heads · head_dim][hidden]
  std::unique_ptr<Matrix> attention_output;  // [hidden][heads · output_head_dim()]
  std::unique_ptr<Vector> attention_output_bias;
  std::unique_ptr<Vector> attention_post_norm;
  std::unique_ptr<Vector> feed_forward_norm;
  std::unique_ptr<Vector> feed_forward_post_norm;
  std::unique_ptr<Matrix> gate;     // [intermediate][hidden], of a gate with another one than silu
  std::unique_ptr<Matrix> gate_up;  // [2 · intermediate][hidden]; without a gate, or beside one: up
  std::unique_ptr<Vector> gate_up_bias;
  std::unique_ptr<Matrix> down;  // [hidden][intermediate]
  std::unique_ptr<Vector> down_bias;
  std::unique_ptr<Matrix> router;          // [experts][hidden]
  std::unique_ptr<Vector> router_bias;     // [experts]: ExpertArgs::router_bias
  std::unique_ptr<Vector> selection_bias;  // [experts]: RouterArgs::selection_bias
  std::unique_ptr<Matrix> shared_gate_up;
  std::unique_ptr<Vector> shared_gate_up_bias;
  std::unique_ptr<Matrix> shared_down;
  std::unique_ptr<Vector> shared_down_bias;
  std::unique_ptr<Matrix> shared_gate;  // [1][hidden]
  std::vector<std::unique_ptr<Matrix>> expert_gate_up;
  std::vector<std::unique_ptr<Matrix>> expert_down;
  std::vector<std::unique_ptr<Vector>> expert_gate_up_bias;
  std::vector<std::unique_ptr<Vector>> expert_down_bias;
};

// A rotary embedding (RopeArgs).
struct RopeWeights {
  std::unique_ptr<Vector> inverse_frequencies;
  float magnitude = 1;
};

// All packed weights of a model, or of a slice of it.
struct DecoderWeights {
  // [vocab][hidden]; null when the slice has neither the first layer nor uses it as output head.
  std::unique_ptr<Matrix> embedding;
  // [vocab][hidden]; null when the embedding is also the output head, or without the last layer.
  std::unique_ptr<Matrix> head;
  // The norm after the last loaded layer: the attention norm of the next layer, or the output norm.
  // Null without such a norm. The output norm includes ModelSpec::logit_scale.
  std::unique_ptr<Vector> next_norm;
  std::unique_ptr<Vector> head_bias;
  RopeWeights rope;
  std::optional<RopeWeights> window_rope;  // ModelSpec::window_rope
  std::vector<LayerWeights> layers;        // the loaded ones
  size_t bytes = 0;                        // packed bytes of all matrices
  // The sum of the hashes of the weights that this rank hashes (weights_hash.h), whatever the slice
  // has loaded of them. The sum over the ranks of a group identifies all weights of the model.
  Hash128 hash;

  const RopeWeights& RopeOf(const LayerSpec& layer) const {
    return layer.window > 0 && window_rope ? *window_rope : rope;
  }
  const Matrix& output_head() const { return head != nullptr ? *head : *embedding; }
};

// Whether a backend with FP8 weights may store this weight in FP8. True for the GEMM weights of
// attention, of MLPs and of experts, except those that `bf16` names.
bool MayUseFp8(const ModelSpec& spec, const WeightId& id, const Bf16Layers& bf16);

struct DecoderLoadOptions {
  bool fp8_kv = false;      // compute the scales of an FP8 KV cache
  Bf16Layers bf16 = {};     // the weights that stay in bf16 when the backend has FP8 weights
  DecoderSlice slice = {};  // the weights to load; all of them by default
  // What this rank hashes of each weight of the layers of the slice: its place among the
  // tensor-parallel ranks.
  PieceShare hashed = {};
  // Called with the fraction of the weights that is loaded, 0 … 1. May be empty.
  std::function<void(double)> progress = {};
};

// Checks that the source has every weight of the model in a type and shape that can be loaded.
// Reads no content. Errors: the first weight that is missing or has another shape, by its name.
Status CheckAllWeights(const ModelSpec& spec, const WeightSource& source);

// Checks first that the source has every weight of the whole model, in types and shapes that can be
// loaded. Then loads tensor by tensor and releases each source tensor after use. Numbers and FP8
// scales of a slice equal those of the whole model (Ops::LoadMatrix). Errors as Decoder::Load;
// InvalidArgument as DecoderSlice::Validate, or naming the tensor whose blocks the slice would cut
// (SliceOf).
StatusOr<DecoderWeights> LoadDecoderWeights(const ModelSpec& spec,
                                            const WeightSource& source,
                                            Ops& ops,
                                            const DecoderLoadOptions& options = {});

}  // namespace baton
