#include "tests/gpu/fp8_numbers.h"

#include <algorithm>
#include <cmath>

namespace baton::cuda::testing {

QuantizedRow Quantize(const float* row, size_t count) {
  float largest = 0;
  for (size_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(row[i]));
  QuantizedRow quantized;
  quantized.scale = largest / 448.0f;
  const float factor = largest > 0 ? 448.0f / largest : 0.0f;
  for (size_t i = 0; i < count; ++i)
    quantized.values.push_back(parity::Rounded(DType::kFp8, row[i] * factor));
  return quantized;
}

std::vector<float> InFp8(std::vector<float> values, size_t cols) {
  for (size_t at = 0; at < values.size(); at += cols) {
    const QuantizedRow row = Quantize(values.data() + at, cols);
    for (size_t i = 0; i < cols; ++i) values[at + i] = row.values[i] * row.scale;
  }
  return values;
}

HostMatrix Quantizable(const parity::HostWeights& weights) {
  HostMatrix matrix = weights.matrix();
  matrix.may_quantize = true;
  return matrix;
}

}  // namespace baton::cuda::testing
