#pragma once

#include <cstddef>
#include <vector>

#include "kernels/tensor.h"
#include "tests/parity/host_weights.h"

// The numbers of rows in FP8 (E4M3), computed on the host.
namespace baton::cuda::testing {

// A row in FP8: the E4M3 numbers, and the row's scale, by which they are still to be multiplied.
struct QuantizedRow {
  std::vector<float> values;
  float scale = 0;
};

QuantizedRow Quantize(const float* row, size_t count);

// The rows of `values` as FP8 represents them: the E4M3 numbers times the scale of the row.
std::vector<float> InFp8(std::vector<float> values, size_t cols);

// The matrix, which the backend may store in FP8.
HostMatrix Quantizable(const parity::HostWeights& weights);

}  // namespace baton::cuda::testing
