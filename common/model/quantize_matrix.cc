#include "common/model/quantize_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/dequantize.h"

namespace baton {
namespace {

constexpr float kLargestFp8 = 448;

Status CheckFinite(const WeightsView& from) {
  const auto bad =
      std::ranges::find_if(from.weights, [](float weight) { return !std::isfinite(weight); });
  if (bad == from.weights.end()) return OkStatus();
  const int64_t at = bad - from.weights.begin();
  return InvalidArgument(
      "weight ({}, {}) is {}; all must be finite", at / from.cols, at % from.cols, *bad);
}

float LargestMagnitude(std::span<const float> weights) {
  float largest = 0;
  for (const float weight : weights) largest = std::max(largest, std::fabs(weight));
  return largest;
}

// The scale of zeros does not matter, but must not be 0, by which weights would be divided.
float NotZero(float scale) {
  return scale == 0 ? 1 : scale;
}

}  // namespace

StatusOr<QuantizedWeights> QuantizeToFourBits(const WeightsView& from, int64_t group) {
  BATON_RETURN_IF_ERROR(CheckFinite(from));
  QuantizedWeights to;
  to.numbers.resize(from.weights.size() / 2);
  for (size_t first = 0; first < from.weights.size(); first += static_cast<size_t>(group)) {
    const auto weights = from.weights.subspan(first, static_cast<size_t>(group));
    const float scale = NotZero(BrainToFloat(FloatToBrain(LargestMagnitude(weights) / 7.5f)));
    to.scales.push_back(scale);
    for (size_t i = 0; i < weights.size(); ++i) {
      const float integer = std::clamp(std::nearbyint(weights[i] / scale), -8.0f, 7.0f);
      const auto nibble = static_cast<uint32_t>(static_cast<int32_t>(integer) + 8);
      to.numbers[(first + i) / 2] |= static_cast<std::byte>(nibble << (i % 2 * 4));
    }
  }
  return to;
}

StatusOr<QuantizedWeights> QuantizeToFp8(const WeightsView& from, int64_t block) {
  BATON_RETURN_IF_ERROR(CheckFinite(from));
  QuantizedWeights to;
  to.numbers.resize(from.weights.size());
  for (int64_t row = 0; row < from.rows; row += block) {
    const int64_t last_row = std::min(from.rows, row + block);
    for (int64_t col = 0; col < from.cols; col += block) {
      const auto width = static_cast<size_t>(std::min(block, from.cols - col));
      const auto of_row = [&](int64_t r) {
        return from.weights.subspan(static_cast<size_t>(r * from.cols + col), width);
      };
      float largest = 0;
      for (int64_t r = row; r < last_row; ++r) {
        largest = std::max(largest, LargestMagnitude(of_row(r)));
      }
      const float scale = NotZero(largest / kLargestFp8);
      to.scales.push_back(scale);
      for (int64_t r = row; r < last_row; ++r) {
        std::byte* const numbers = to.numbers.data() + r * from.cols + col;
        const auto weights = of_row(r);
        for (size_t i = 0; i < width; ++i) {
          numbers[i] = static_cast<std::byte>(FloatToFp8(weights[i] / scale));
        }
      }
    }
  }
  return to;
}

}  // namespace baton
