#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/model/block_spec.h"
#include "common/model/model_family.h"
#include "kernels/ops.h"

namespace baton {

enum class RopeScaling : uint8_t {
  kNone,
  kLinear,  // positions divided by `factor`
  kLlama3,  // Llama 3.1: low frequencies divided by `factor`, high ones kept, a ramp in between
  kYarn,    // arXiv:2309.00071
  kLong,    // LongRoPE (arXiv:2402.13753): each frequency divided by a factor of its own
};

std::string_view Name(RopeScaling scaling);

// Rotary position embedding (arXiv:2104.09864) and its scaling to long contexts.
struct RopeSpec {
  double theta = 10000;
  int32_t rotary_dim = 0;  // dimensions of a head that are rotated
  RopePairing pairing = RopePairing::kHalves;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;
  int32_t original_context = 0;  // kLlama3, kYarn: the context length before scaling
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  double beta_fast = 32;
  double beta_slow = 1;
  double attention_factor = 0;  // kYarn: 0 = 0.1 · ln(factor) + 1; kLong: must be set
  std::vector<double> factors;  // kLong: [rotary_dim / 2]
  bool truncate = true;         // kYarn: the ends of the ramp are rounded to whole dimensions
  bool file_factors = false;    // the weight file has a tensor that divides each frequency
};

// The shape of a decoder-only transformer: everything Decoder needs besides the weights. Plain
// data.
struct ModelSpec {
  // The highest allowed values. The readers of configurations and Validate refuse higher ones.
  static constexpr int32_t kMaxHidden = 1 << 20;
  static constexpr int32_t kMaxHeads = 4096;
  static constexpr int32_t kMaxHeadDim = 1024;
  static constexpr int32_t kMaxIntermediate = 1 << 22;
  static constexpr int32_t kMaxVocabulary = 1 << 24;
  static constexpr int32_t kMaxContext = 1 << 28;  // also limits sliding windows
  static constexpr int32_t kMaxExperts = 1024;
  static constexpr double kMaxScale = 1e6;

  ModelFamily family = ModelFamily::kLlama;
  int32_t hidden = 0;
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t intermediate = 0;  // size of the dense feed-forward network; 0 when all layers are MoE
  int32_t vocab = 0;         // rows of the embedding; may exceed the tokenizer's vocabulary
  int32_t context_length = 0;
  float norm_epsilon = 1e-5f;
  RopeSpec rope;
  std::optional<RopeSpec> window_rope;  // of layers with a window, if it is another one
  NormKind norm = NormKind::kRms;
  ResidualForm residual = ResidualForm::kPreNorm;
  QkNorm qk_norm = QkNorm::kNone;
  // With a rank: head_dim is that of q and k, and kv_heads is `heads`.
  LatentSpec latent = {};
  RecurrentSpec recurrent = {};
  bool attention_gate = false;  // attention is multiplied by a sigmoid of a projection of its input
  FeedForward feed_forward = FeedForward::kSiluGated;
  float embedding_scale = 1;         // multiplies embeddings
  float attention_input_scale = 1;   // multiplies the input of attention
  float attention_output_scale = 1;  // multiplies what attention adds
  float feed_forward_scale = 1;      // multiplies what dense feed-forward networks add
  float gate_scale = 1;              // multiplies the gate of these before silu
  float residual_scale = 1;          // multiplies what attention and the feed-forward network add
  float attention_scale = 0;         // multiplies q · k; 0 = 1/√head_dim
  float attention_cap = 0;           // AttentionArgs::cap
  QueryScaling query_scaling = {};   // of layers that do not rotate
  float logit_scale = 1;             // multiplies logits
  float logit_cap = 0;               // of logits, as attention_cap
  bool qkv_bias = false;             // attention input biases (Qwen 2); latents: of what gives them
  bool o_bias = false;               // attention output bias
  bool mlp_bias = false;             // feed-forward biases
  bool head_bias = false;            // of the output head
  bool attention_sinks = false;      // AttentionArgs::sinks in all layers
  bool tied_head = false;  // the model's files say that the output head is the embedding table
  // The files tie the head, but have another head of its own (FindOwnHead), which is used. Not in
  // ToString, because only who has the weights knows it; hashes of the weights tell it.
  bool own_head = false;
  MoeSpec moe;
  std::vector<LayerSpec> layers;
  std::vector<TokenId> eos;  // tokens that end a generation, as the model's files name them
  std::optional<TokenId> bos;

  bool latent_attention() const { return latent.rank > 0; }
  // The number of layers that have KV, and of those that have a state; some have both.
  int32_t attention_layers() const;
  int32_t state_layers() const;
  // Numbers of a head that attention yields.
  int32_t output_head_dim() const { return latent_attention() ? latent.value_dim : head_dim; }
  bool input_norms() const { return residual != ResidualForm::kPostNorm; }
  bool post_norms() const {
    return residual == ResidualForm::kPreAndPostNorm || residual == ResidualForm::kPostNorm;
  }
  bool parallel() const {
    return residual == ResidualForm::kParallel || residual == ResidualForm::kParallelTwoNorms;
  }
  // Whether the feed-forward network has an input norm that attention does not have.
  bool feed_forward_norms() const { return input_norms() && residual != ResidualForm::kParallel; }
  bool norms_after_rope() const {
    return qk_norm == QkNorm::kHeadAfterRope || qk_norm == QkNorm::kUnitAfterRope;
  }
  bool silu() const { return feed_forward == FeedForward::kSiluGated; }
  // Whether gate and up of dense networks are one matrix.
  bool joins_gate() const { return silu() && gate_scale == 1; }
  bool gated() const { return silu() || feed_forward == FeedForward::kGeluTanhGated; }
  bool embedding_is_head() const { return tied_head && !own_head; }
  int32_t layer_count() const { return static_cast<int32_t>(layers.size()); }
  // The largest sliding window; 0 when a layer has none, so that all KV is read.
  int32_t sliding_window() const;
  HeadShape head_shape() const { return {heads, kv_heads, head_dim}; }
  // Bytes of KV per token when one number takes `number_bytes` bytes.
  size_t KvBytesPerToken(size_t number_bytes) const;
  // Bytes of the state of a sequence; 0: no layer has a state.
  size_t StateBytes() const;

  // InvalidArgument naming `file`, the field that is out of bounds and its value.
  Status Validate(std::string_view file) const;
  // Every field that affects the computation, each on a "name value" line; Fingerprint hashes this
  // text. The context length is not included, because settings may shorten it.
  std::string ToString() const;
};

}  // namespace baton
