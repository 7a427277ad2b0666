#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "common/kvcache/kv_window.h"
#include "kernels/expert_args.h"
#include "kernels/latent_ops.h"
#include "kernels/recurrent_ops.h"

// What the blocks of a transformer are made of. A model family is a choice of these values.
namespace baton {

enum class NormKind : uint8_t {
  kRms,
  kLayer,          // LayerNorm (arXiv:1607.06450) without a bias
  kLayerWithBias,  // LayerNorm with one
};

// How attention and the feed-forward network are added to the residual x. n, m and p are norms.
enum class ResidualForm : uint8_t {
  kPreNorm,           // x + f(n(x)), one after the other
  kPreAndPostNorm,    // x + p(f(n(x)))
  kPostNorm,          // x + p(f(x))
  kParallel,          // x + attention(n(x)) + feed_forward(n(x))
  kParallelTwoNorms,  // x + attention(n(x)) + feed_forward(m(x))
};

// The norms of q and k. Those of heads come before the rotary embedding, unless stated.
enum class QkNorm : uint8_t {
  kNone,
  kHead,           // RMS norm of each head
  kHeadAfterRope,  // the same, after the rotary embedding
  kProjection,     // RMS norm of all heads together
  kHeadLayer,      // LayerNorm of each head, with weights of its own
  kUnitAfterRope,  // RMS norm of each head after the rotary embedding, where the layer has one,
                   // without a weight
};

enum class FeedForward : uint8_t {
  kSiluGated,      // down(silu(gate x) · up x)
  kGelu,           // down(gelu(up x)), exact
  kGeluTanh,       // the same with the approximation by tanh
  kGeluTanhGated,  // down(gelu(gate x) · up x), with this approximation
  kSquaredRelu,    // down(max(up x, 0)²); so are experts
};

std::string_view Name(NormKind norm);
std::string_view Name(ResidualForm form);
std::string_view Name(QkNorm norm);
std::string_view Name(FeedForward kind);
std::string_view Name(RecurrentRule rule);

// Multi-head latent attention (arXiv:2405.04434): queries, and keys and values of all heads, are
// computed from a latent each.
struct LatentSpec {
  int32_t q_rank = 0;     // size of the latent of queries; 0: they are computed from the input
  int32_t rank = 0;       // size of the latent of keys and values; 0: no latent attention
  int32_t nope_dim = 0;   // numbers of a q or k head that are not rotated
  int32_t rope_dim = 0;   // numbers behind them that are; those of k are the same in all heads
  int32_t value_dim = 0;  // numbers of a v head
  // The files have what computes keys and values of a latent as two tensors of all heads, those of
  // keys transposed, and not as one.
  bool two_tensors = false;
  IndexShape index = {};  // of the tokens that rows attend to, if there is one

  // The numbers of a token in the KV cache.
  int32_t width() const { return rank + rope_dim; }
};

// The recurrent layers of a model: a projection of the input, a convolution, a state that each row
// changes (RecurrentOps), and a projection of the output.
struct RecurrentSpec {
  RecurrentShape shape = {};  // without key heads: no layer is recurrent
  bool convolution_bias = false;
  // Of gated delta nets, the files have q, k and v of all heads in one tensor, in this order, and z
  // in another one; else one tensor has [q | k | v | z] of each key head.
  bool inputs_by_kind = false;
  // They have the two gates of a value head in two tensors; else one has both of each key head.
  bool gates_by_kind = false;
  // The files have q and k of this many heads, and each key head h those of head h modulo it; 0: of
  // each key head its own, but for RecurrentShape::key_copies.
  int32_t tiled_keys = 0;
  bool norm = true;  // of the output, before its projection
  // RecurrentArgs::min_time and max_time.
  float min_time = 0;
  float max_time = std::numeric_limits<float>::infinity();
  // What is computed of the input through a latent: with kSelectiveScan the times, with
  // kChannelDelta the times and the gate of the output.
  int32_t latent_rank = 0;
  // Factors of the input, of what is computed of it (z, v, k, q and the times), and of the output.
  float input_scale = 1;
  float gate_scale = 1;
  float value_scale = 1;
  float key_scale = 1;
  float query_scale = 1;
  float time_scale = 1;
  float output_scale = 1;

  // The head of the files whose q and k a key head has, and the numbers of q or k of all of them.
  int64_t FileKey(int64_t head) const {
    return tiled_keys > 0 ? head % tiled_keys : head / shape.key_copies;
  }
  int64_t file_key_numbers() const {
    return tiled_keys > 0 ? int64_t{tiled_keys} * shape.key_dim : shape.key_numbers();
  }

  bool operator==(const RecurrentSpec&) const = default;
};

struct MoeSpec {
  int32_t experts = 0;
  int32_t experts_per_token = 0;
  int32_t intermediate = 0;  // feed-forward size of one expert
  bool normalize = true;     // the chosen experts' weights sum to 1
  RouterScore score = RouterScore::kSoftmax;
  bool weighted_inputs = false;  // RouterArgs::weighted_inputs
  bool selection_bias = false;   // RouterArgs::selection_bias
  int32_t groups = 1;            // RouterArgs::groups
  int32_t groups_per_token = 1;
  GroupScore group_score = GroupScore::kBestTwo;
  float scale = 1;                  // multiplies the chosen experts' weights
  float least_sum = 0;              // RouterArgs::least_sum
  int32_t shared_intermediate = 0;  // size of the network of all tokens beside the experts; or 0
  bool shared_gate = false;         // its output is multiplied by a sigmoid of the input
  bool biases = false;              // of the router, and of gate, up and down of each expert
  ExpertGate gate = {};
};

struct LayerSpec {
  int32_t window = 0;  // sliding attention window in tokens; 0 = full attention, or in chunks
  int32_t chunk = 0;   // attention within chunks of this many tokens; 0 = none
  bool moe = false;    // experts instead of one feed-forward network
  bool rotary = true;  // q and k are rotated
  // What the layer consists of. Where attention and the recurrent part (ModelSpec::recurrent) are
  // both present, they read the same input, and their outputs are added up. Attention keeps KV of
  // each token, the recurrent part a state for each sequence.
  bool attention = true;
  bool state = false;
  bool feed_forward = true;

  bool mixes() const { return attention || state; }
  KvWindow tokens_read() const { return chunk > 0 ? KvWindow::OfChunks(chunk) : KvWindow(window); }
};

}  // namespace baton
