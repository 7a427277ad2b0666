#pragma once

#include <cstdint>
#include <vector>

#include "kernels/tensor.h"

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

float HalfToFloat(uint16_t half);
// Rounds to nearest, ties to even.
uint16_t FloatToHalf(float value);

}  // namespace baton::parity
