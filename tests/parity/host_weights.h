#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ops.h"

namespace baton::parity {

// A random matrix as a file would hold it, and what its numbers are. The meaning of each format is
// written down here once more, independently of the backends.
struct HostWeights {
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<std::byte> bytes;
  std::vector<float> values;  // [rows][cols]

  HostMatrix matrix() const { return {dtype, rows, cols, bytes.data()}; }
};

HostWeights RandomWeights(DType dtype, int64_t rows, int64_t cols, uint64_t seed);
// `weights` as `ops` holds them: backends with bf16 activations round their weights to bf16.
HostWeights HeldBy(const Ops& ops, HostWeights weights);
// `cols` as a backend with 16-bit numbers takes them: a multiple of 16 bytes.
int64_t WholeCols(const Ops& ops, int64_t cols);

// `value` after it was stored in `dtype` (kF32, kF16, kBF16 or kF8); to nearest, ties to even. What
// is too large for kF8 becomes its largest number.
float Rounded(DType dtype, float value);

float HalfToFloat(uint16_t half);
// Rounds to nearest, ties to even.
uint16_t FloatToHalf(float value);

}  // namespace baton::parity
