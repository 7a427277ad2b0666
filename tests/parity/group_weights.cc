#include "tests/parity/group_weights.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace baton::parity {
namespace {

constexpr GroupForm kForms[] = {
    {.name = "gptq_g32", .group_cols = 32},
    {.name = "gptq_g128_zeros", .group_cols = 128, .zeros = true},
    {.name = "gptq_act_order", .group_cols = 32, .zeros = true, .act_order = true},
    {.name = "gptq_channels", .zeros = true},
    {.name = "gptq_8_bits", .group_cols = 64, .dtype = DType::kI8, .zeros = true},
    {.name = "ct_g64", .group_cols = 64, .scale_type = ScaleType::kBF16},
    {.name = "ct_g16", .group_cols = 16, .scale_type = ScaleType::kBF16},
    {.name = "ct_g48_zeros", .group_cols = 48, .scale_type = ScaleType::kF32, .zeros = true},
    {.name = "ct_g96", .group_cols = 96},
    {.name = "int8_channels", .dtype = DType::kI8, .scale_type = ScaleType::kF32},
    {.name = "int8_tensor", .group_rows = 0, .dtype = DType::kI8, .scale_type = ScaleType::kBF16},
    {.name = "fp8_blocks",
     .group_rows = 32,
     .group_cols = 128,
     .dtype = DType::kFp8,
     .scale_type = ScaleType::kF32},
    {.name = "fp8_blocks_of_10_rows",
     .group_rows = 10,
     .group_cols = 64,
     .dtype = DType::kFp8,
     .scale_type = ScaleType::kF32},
    {.name = "fp8_channels", .dtype = DType::kFp8, .scale_type = ScaleType::kBF16},
    {.name = "fp8_tensor", .group_rows = 0, .dtype = DType::kFp8, .scale_type = ScaleType::kF32},
    {.name = "nvfp4", .group_cols = 16, .dtype = DType::kFp4, .scale_type = ScaleType::kFp8},
    {.name = "mxfp4_groups",
     .group_cols = 32,
     .dtype = DType::kFp4,
     .scale_type = ScaleType::kE8m0},
};

constexpr float kDivisor = 96;  // the global scale of FP8 scales

// A scale of about `size` that the type has.
float RandomScale(ScaleType type, float size, std::mt19937_64& random) {
  std::uniform_real_distribution<float> factor(0.3f * size, 3 * size);
  const float scale = factor(random);
  switch (type) {
    case ScaleType::kF32:
      return scale;
    case ScaleType::kF16:
      return Rounded(DType::kF16, scale);
    case ScaleType::kBF16:
      return Rounded(DType::kBF16, scale);
    case ScaleType::kFp8:
      return Rounded(DType::kFp8, scale * kDivisor) / kDivisor;
    case ScaleType::kE8m0:
      return std::exp2(std::round(std::log2(scale)));
  }
  return scale;
}

// The number of these bits.
float NumberOf(DType dtype, uint32_t bits) {
  switch (dtype) {
    case DType::kU4:
      return static_cast<float>(bits);
    case DType::kI8:
      return static_cast<float>(static_cast<int8_t>(bits));
    case DType::kFp4: {
      constexpr float kSizes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
      return (bits < 8 ? 1.0f : -1.0f) * kSizes[bits % 8];
    }
    default:
      break;
  }
  const int exponent = static_cast<int>(bits >> 3 & 15);
  const auto mantissa = static_cast<float>(bits & 7);
  const float size =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return bits < 128 ? size : -size;
}

// The largest of these numbers.
float LargestOf(DType dtype) {
  switch (dtype) {
    case DType::kU4:
      return 8;
    case DType::kI8:
      return 128;
    case DType::kFp4:
      return 6;
    default:
      return 448;
  }
}

}  // namespace

std::span<const GroupForm> GroupForms() {
  return kForms;
}

HostWeights RandomGroupWeights(const GroupForm& form, int64_t rows, int64_t cols, uint64_t seed) {
  std::mt19937_64 random(seed);
  HostWeights weights{.dtype = form.dtype, .rows = rows, .cols = cols};
  WeightGroups& groups = weights.groups;
  groups.rows = form.group_rows == 0 ? rows : form.group_rows;
  groups.cols = form.group_cols == 0 ? cols : form.group_cols;
  groups.in_row = (cols + groups.cols - 1) / groups.cols;
  groups.scale_type = form.scale_type;
  groups.divisor = form.scale_type == ScaleType::kFp8 ? kDivisor : 1;
  groups.zero = form.dtype == DType::kU4 ? 8 : 0;
  const int64_t sets = (rows + groups.rows - 1) / groups.rows * groups.in_row;
  for (int64_t i = 0; i < sets; ++i) {
    weights.scales.push_back(RandomScale(form.scale_type, 0.2f / LargestOf(form.dtype), random));
    const auto zero = static_cast<int32_t>(random() >> 60);
    if (form.zeros)
      weights.zeros.push_back(static_cast<int8_t>(form.dtype == DType::kU4 ? zero : zero * 4 - 30));
  }
  for (int64_t k = 0; k < cols; ++k) {
    weights.of_input.push_back(static_cast<int32_t>(k / groups.cols));
  }
  if (form.act_order) std::shuffle(weights.of_input.begin(), weights.of_input.end(), random);

  const bool halves = RowBytes(form.dtype, 2) == 1;
  for (int64_t i = 0; i < rows * cols; ++i) {
    auto bits = static_cast<uint32_t>(random() >> 32) & (halves ? 15u : 255u);
    if (form.dtype == DType::kFp8 && (bits & 127) == 127) bits = 0;  // NaN
    if (halves && i % 2 == 1) {
      weights.bytes.back() |= static_cast<std::byte>(bits << 4);
    } else {
      weights.bytes.push_back(static_cast<std::byte>(bits));
    }
    const int32_t of_input = weights.of_input[static_cast<size_t>(i % cols)];
    const auto set = static_cast<size_t>(i / cols / groups.rows * groups.in_row + of_input);
    const int32_t zero = form.zeros ? weights.zeros[set] : groups.zero;
    weights.values.push_back(weights.scales[set] *
                             (NumberOf(form.dtype, bits) - static_cast<float>(zero)));
  }
  if (!form.act_order) weights.of_input.clear();
  return weights;
}

}  // namespace baton::parity
