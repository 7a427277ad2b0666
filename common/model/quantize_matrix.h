#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/status.h"

// Weights of a linear layer, quantised by rounding to the nearest number, in the layouts of
// compressed-tensors (README.md).
namespace baton {

// Row-major weights [rows][cols].
struct WeightsView {
  std::span<const float> weights;
  int64_t rows = 0;
  int64_t cols = 0;
};

struct QuantizedWeights {
  std::vector<std::byte> numbers;
  std::vector<float> scales;
};

// Symmetric integers of 4 bits: `numbers` are words of eight integers plus 8, [rows][cols / 8];
// `scales` are [rows][cols / group], each the largest magnitude of its group / 7.5, rounded to
// bfloat16. `group` is a multiple of 8 that divides cols. Errors: InvalidArgument when a weight is
// not finite.
StatusOr<QuantizedWeights> QuantizeToFourBits(const WeightsView& from, int64_t group);

// FP8 (E4M3): `numbers` are [rows][cols]; `scales` are those of blocks, [⌈rows / block⌉][⌈cols /
// block⌉], each the largest magnitude of the block / 448. Errors: as above.
StatusOr<QuantizedWeights> QuantizeToFp8(const WeightsView& from, int64_t block);

}  // namespace baton
