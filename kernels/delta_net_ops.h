#pragma once

#include <cstdint>

#include "kernels/tensor.h"

namespace baton {

// The sizes of a gated delta net (arXiv:2412.06464) on one rank. Each key head has
// value_heads / key_heads value heads. The state of a layer on a rank has two planes of float32:
// - of each value head, the matrix [key_dim][value_dim] that the delta rule changes;
// - of each key head, the last `kernel` inputs of the convolution, [kernel][channels()]: that of
//   position p is number p % kernel.
struct DeltaNetShape {
  int32_t key_heads = 0;  // 0: no delta net
  int32_t value_heads = 0;
  int32_t key_dim = 0;
  int32_t value_dim = 0;
  int32_t kernel = 0;  // inputs that an output of the convolution depends on

  int32_t group() const { return key_heads > 0 ? value_heads / key_heads : 0; }
  // What the convolution changes of a key head: [q | k | v of its value heads].
  int32_t channels() const { return 2 * key_dim + group() * value_dim; }
  // A key head's columns of the projected input: [q | k | v | z], z as v.
  int32_t input_columns() const { return channels() + group() * value_dim; }
  // Numbers of the state of a key head.
  int64_t matrix_numbers() const { return int64_t{group()} * key_dim * value_dim; }
  int64_t convolution_numbers() const { return int64_t{kernel} * channels(); }
  int64_t state_numbers() const { return key_heads * (matrix_numbers() + convolution_numbers()); }

  bool operator==(const DeltaNetShape&) const = default;
};

struct DeltaNetArgs {
  DeltaNetShape shape;
  // [key_heads][kernel][channels()]: the factors of the oldest input first.
  const Vector* convolution = nullptr;
  const Vector* decay = nullptr;      // [value_heads]: A, the logarithm of a factor
  const Vector* time_bias = nullptr;  // [value_heads]
  const Vector* norm = nullptr;       // [value_dim]
  float norm_epsilon = 0;
  int32_t layer = 0;
};

// The ops of gated delta nets. Ops::delta_net_ops of the backend (OpVariant::kDeltaNet); called as
// other ops are, under the same conditions. A row's result depends on no other row but the earlier
// ones of its sequence, and on them only through the state, so it is the same in every chunk.
class DeltaNetOps {
 public:
  virtual ~DeltaNetOps() = default;

  // `x` is [rows][key_heads · input_columns()], and `gates` is, of each key head, [b | a] of its
  // value heads. For each row, in the order of its sequence:
  //   q, k, v = silu(convolution over the last inputs); q and k are divided by their lengths, and q
  //             by √key_dim
  //   S       = e^(−e^A · softplus(a + time_bias)) · S
  //   S       = S + k ⊗ sigmoid(b) · (v − kᵀ S)
  //   out     = RMS norm(qᵀ S) · silu(z)
  // out is [rows][value_heads · value_dim]. The states are those of SequenceRows; a row that is in
  // its state already leaves the state as it is.
  virtual void RunDeltaNet(const Tensor& x,
                           const Tensor& gates,
                           const DeltaNetArgs& args,
                           const Tensor& out) = 0;
};

}  // namespace baton
