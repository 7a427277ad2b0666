#pragma once

#include <cstdint>
#include <limits>

#include "kernels/tensor.h"

namespace baton {

// How a row of a recurrent layer changes the state S of a head, [key_dim][value_dim].
enum class RecurrentRule : uint8_t {
  kDelta,          // gated delta net (arXiv:2412.06464): one decay for a head
  kChannelDelta,   // Kimi delta attention (arXiv:2510.26692): a decay for each row of S
  kStateSpace,     // Mamba 2 (arXiv:2405.21060): S is not read before it is changed
  kSelectiveScan,  // Mamba (arXiv:2312.00752): a decay for each number of S
};

// The sizes of a recurrent layer on one rank. Each key head has value_heads / key_heads value
// heads, one with kChannelDelta and kSelectiveScan. The state of a layer on a rank has two planes
// of float32:
// - of each value head, the matrix S;
// - of each key head, the last `kernel` inputs of the convolution, [kernel][channels()]: that of
//   position p is number p % kernel.
struct RecurrentShape {
  RecurrentRule rule = RecurrentRule::kDelta;
  int32_t key_heads = 0;  // 0: no recurrent layer
  int32_t value_heads = 0;
  int32_t key_dim = 0;
  int32_t value_dim = 0;
  int32_t kernel = 0;  // inputs that an output of the convolution depends on
  // kStateSpace: the number of neighbouring key heads that have the same q and k, which the inputs
  // hold once.
  int32_t key_copies = 1;

  int32_t group() const { return key_heads > 0 ? value_heads / key_heads : 0; }
  // What the convolution changes of a key head: [q | k | v of its value heads]; with kSelectiveScan
  // v alone.
  int32_t channels() const { return first_value_channel() + group() * value_dim; }
  int32_t first_value_channel() const {
    return rule == RecurrentRule::kSelectiveScan ? 0 : 2 * key_dim;
  }
  // Numbers of v of all heads, and of q or k.
  int64_t value_numbers() const { return int64_t{value_heads} * value_dim; }
  int64_t key_numbers() const { return int64_t{key_heads / key_copies} * key_dim; }
  // Columns of the inputs of RunRecurrent, or of Convolve.
  int64_t input_columns() const;
  // Columns of the gates.
  int64_t gate_columns() const;
  // Numbers of the state of a key head.
  int64_t matrix_numbers() const { return int64_t{group()} * key_dim * value_dim; }
  int64_t convolution_numbers() const { return int64_t{kernel} * channels(); }
  int64_t state_numbers() const { return key_heads * (matrix_numbers() + convolution_numbers()); }

  bool operator==(const RecurrentShape&) const = default;
};

inline int64_t RecurrentShape::input_columns() const {
  switch (rule) {
    case RecurrentRule::kDelta:
    case RecurrentRule::kStateSpace:
      return 2 * key_numbers() + 2 * value_numbers();
    case RecurrentRule::kChannelDelta:
      return 2 * key_numbers() + value_numbers() + value_heads;
    case RecurrentRule::kSelectiveScan:
      break;
  }
  return value_numbers();
}

inline int64_t RecurrentShape::gate_columns() const {
  switch (rule) {
    case RecurrentRule::kDelta:
      return int64_t{2} * value_heads;
    case RecurrentRule::kChannelDelta:
      return key_numbers();
    case RecurrentRule::kStateSpace:
      return value_heads;
    case RecurrentRule::kSelectiveScan:
      break;
  }
  return value_numbers();
}

struct RecurrentArgs {
  RecurrentShape shape;
  // [key_heads][kernel][channels()]: the factors of the oldest input first.
  const Vector* convolution = nullptr;
  const Vector* convolution_bias = nullptr;  // [key_heads][channels()], or null
  // A, the logarithm of a factor: [value_heads]; kSelectiveScan: [key_heads][key_dim][value_dim].
  const Vector* decay = nullptr;
  const Vector* time_bias = nullptr;  // [gate_columns()]; kDelta: [value_heads]
  const Vector* skip = nullptr;       // kStateSpace: D, [value_heads]; kSelectiveScan: of each v
  // kDelta and kChannelDelta: [value_dim]; kStateSpace: [value_heads][value_dim], or null: no norm.
  const Vector* norm = nullptr;
  float norm_epsilon = 0;
  // kStateSpace: z and the times before their bias are multiplied by these; times are kept within
  // a range.
  float gate_scale = 1;
  float time_scale = 1;
  float min_time = 0;
  float max_time = std::numeric_limits<float>::infinity();
  // kSelectiveScan: the column of v at which the value heads of this rank begin.
  int64_t first_value = 0;
  int32_t layer = 0;  // of KvView::places
};

// The ops of recurrent layers. Ops::recurrent_ops of the backend (OpVariant::kDeltaNet and its
// neighbours); called as other ops are, under the same conditions. A row's result depends on no
// other row but the earlier ones of its sequence, and on them only through the state, so it is the
// same in every chunk. The states are those of SequenceRows; a row that is in its state already
// leaves the state as it is.
class RecurrentOps {
 public:
  virtual ~RecurrentOps() = default;

  // All of a layer but its projections, for the rules but kSelectiveScan. `x` has input_columns()
  // and `gates` gate_columns() columns; out is [rows][value_heads · value_dim].
  // For each row, in the order of its sequence, q, k and v are silu(convolution over the last
  // inputs), and with time = softplus(a + time_bias) of a head, or of each of its key_dim rows:
  // - kDelta: x is, of each key head, [q | k | v | z], and `gates`, of each key head, [b | a] of
  //   its value heads. q and k are divided by their lengths, and q by √key_dim.
  //     S   = e^(−e^A · time) · S
  //     S   = S + k ⊗ sigmoid(b) · (v − kᵀ S)
  //     out = RMS norm(qᵀ S) · silu(z)
  // - kChannelDelta: the same with x = [q | k | v | b], of all heads each, a decay for each row of
  //   S, which are the gates [key heads][key_dim], and without a product with silu(z).
  // - kStateSpace: x = [z | v | k | q], of all heads each, and the gates are a of each value head.
  //     S   = e^(−e^A · time) · S + k ⊗ time · v
  //     out = RMS norm((qᵀ S + D · v) · silu(z)), over the value heads of a key head together
  virtual void RunRecurrent(const Tensor& x,
                            const Tensor& gates,
                            const RecurrentArgs& args,
                            const Tensor& out) = 0;

  // kSelectiveScan: v = silu(convolution over the last inputs), [rows][value_heads · value_dim], of
  // x in the same order. Writes the inputs into the state.
  virtual void Convolve(const Tensor& x, const RecurrentArgs& args, const Tensor& out) = 0;
  // The rest of it. `k` and `q` are [rows][key_dim], for all heads; `gates` is a of each number of
  // v.
  //   S   = e^(−e^A · time) · S + k ⊗ time · v
  //   out = qᵀ S + D · v
  // with time = softplus(a + time_bias).
  virtual void Scan(const Tensor& v,
                    const Tensor& gates,
                    const Tensor& k,
                    const Tensor& q,
                    const RecurrentArgs& args,
                    const Tensor& out) = 0;
};

}  // namespace baton
