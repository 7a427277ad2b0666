#include "tests/unit/model/quantized_examples.h"

#include <cmath>
#include <random>

#include <fmt/format.h>

namespace baton {

std::vector<uint32_t> Integers(int64_t rows, int64_t cols, int32_t bits) {
  std::mt19937 random(static_cast<uint32_t>(rows * 100 + cols + bits));
  std::vector<uint32_t> integers(static_cast<size_t>(rows * cols));
  for (uint32_t& integer : integers) integer = random() >> (32 - bits);
  return integers;
}

std::vector<float> Scales(int64_t count) {
  std::vector<float> scales;
  for (int64_t i = 0; i < count; ++i) scales.push_back(0.25f + static_cast<float>(i) / 64);
  return scales;
}

namespace {

// Packs integers [rows][cols] along the columns, the first one in the low bits of a word.
std::vector<uint32_t> PackColumns(const std::vector<uint32_t>& integers, int64_t cols, int bits) {
  const int64_t rows = static_cast<int64_t>(integers.size()) / cols;
  const int64_t words = (cols * bits + 31) / 32;
  std::vector<uint32_t> packed(static_cast<size_t>(rows * words));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t bit = 0; bit < cols * bits; ++bit) {
      const uint32_t one =
          integers[static_cast<size_t>(row * cols + bit / bits)] >> (bit % bits) & 1;
      packed[static_cast<size_t>(row * words + bit / 32)] |= one << (bit % 32);
    }
  }
  return packed;
}

template <class Number>
std::vector<Number> Transposed(const std::vector<Number>& numbers, int64_t cols) {
  const int64_t rows = static_cast<int64_t>(numbers.size()) / cols;
  std::vector<Number> result;
  for (int64_t col = 0; col < cols; ++col) {
    for (int64_t row = 0; row < rows; ++row) {
      result.push_back(numbers[static_cast<size_t>(row * cols + col)]);
    }
  }
  return result;
}

// The weights (integer − zero) · scale, with scales and zeros [rows][groups].
std::vector<float> WeightsOf(const std::vector<uint32_t>& integers,
                             const std::vector<float>& scales,
                             const std::vector<uint32_t>& zeros,
                             const std::vector<int32_t>& group_of_input = {}) {
  std::vector<float> weights;
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t col = 0; col < kCols; ++col) {
      const int64_t group =
          group_of_input.empty() ? col / kGroup : group_of_input[static_cast<size_t>(col)];
      const auto at = static_cast<size_t>(row * kGroups + group);
      const auto integer = static_cast<float>(integers[static_cast<size_t>(row * kCols + col)]);
      weights.push_back(scales[at] * (integer - static_cast<float>(zeros[at])));
    }
  }
  return weights;
}

}  // namespace

Example Gptq(int32_t bits, bool symmetric, bool zeros_less_by_one, bool act_order) {
  Example example;
  const auto integers = Integers(kRows, kCols, bits);
  const auto scales = Scales(kRows * kGroups);
  const uint32_t middle = 1u << (bits - 1);
  std::vector<uint32_t> zeros(static_cast<size_t>(kRows * kGroups), middle);
  if (!symmetric) zeros = Integers(kRows, kGroups, bits);
  auto stored = zeros;
  const uint32_t last = 2 * middle - 1;
  // Tools that store symmetric weights do not agree on what their zeros are; they are not read.
  for (uint32_t& zero : stored) zero = symmetric ? 0 : (zero - (zeros_less_by_one ? 1 : 0)) & last;
  std::vector<int32_t> groups;
  for (int32_t col = 0; col < kCols; ++col) {
    groups.push_back(act_order ? col % static_cast<int32_t>(kGroups)
                               : col / static_cast<int32_t>(kGroup));
  }
  const auto words = Transposed(PackColumns(integers, kCols, bits), kCols * bits / 32);
  example.tensors = {
      .layout = QuantizedTensors::Layout::kGptq,
      .numbers = example.held.Add("q.qweight", "I32", {kCols * bits / 32, kRows}, words),
      .scales = example.held.Add("q.scales", "f32", {kGroups, kRows}, Transposed(scales, kGroups)),
      .zeros = example.held.Add("q.qzeros",
                                "I32",
                                {kGroups, (kRows * bits + 31) / 32},
                                PackColumns(Transposed(stored, kGroups), kRows, bits)),
      .group_indices = example.held.Add("q.g_idx", "I32", {kCols}, groups)};
  example.quantization = {.method = QuantMethod::kGptq,
                          .zeros_less_by_one = zeros_less_by_one,
                          .schemes = {{.numbers = bits == 8 ? DType::kI8 : DType::kU4,
                                       .bits = bits,
                                       .group_cols = kGroup,
                                       .symmetric = symmetric}}};
  example.weights = WeightsOf(integers, scales, zeros, groups);
  return example;
}

Example Awq() {
  Example example;
  const auto integers = Integers(kRows, kCols, 4);
  const auto scales = Scales(kRows * kGroups);
  const auto zeros = Integers(kRows, kGroups, 4);
  // Outputs 8 · w + order[k] are integer k of word w.
  const auto reorder = [](const std::vector<uint32_t>& by_output) {
    constexpr size_t kOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    std::vector<uint32_t> result(by_output.size());
    for (size_t i = 0; i < result.size(); ++i) result[i] = by_output[i / 8 * 8 + kOrder[i % 8]];
    return PackColumns(result, kRows, 4);
  };
  example.tensors = {
      .layout = QuantizedTensors::Layout::kAwq,
      .numbers = example.held.Add(
          "q.qweight", "I32", {kCols, kRows / 8}, reorder(Transposed(integers, kCols))),
      .scales = example.held.Add("q.scales", "f32", {kGroups, kRows}, Transposed(scales, kGroups)),
      .zeros = example.held.Add(
          "q.qzeros", "I32", {kGroups, kRows / 8}, reorder(Transposed(zeros, kGroups)))};
  example.quantization = {.method = QuantMethod::kAwq,
                          .schemes = {{.group_cols = kGroup, .symmetric = false}}};
  example.weights = WeightsOf(integers, scales, zeros);
  return example;
}

Example Packed(int32_t bits, bool symmetric) {
  Example example;
  const auto integers = Integers(kRows, kCols, bits);
  const auto scales = Scales(kRows * kGroups);
  std::vector<uint32_t> zeros(static_cast<size_t>(kRows * kGroups), 1u << (bits - 1));
  if (!symmetric) zeros = Integers(kRows, kGroups, bits);
  example.tensors = {
      .layout = QuantizedTensors::Layout::kPacked,
      .numbers = example.held.Add(
          "q.weight_packed", "I32", {kRows, kCols * bits / 32}, PackColumns(integers, kCols, bits)),
      .scales = example.held.Add("q.weight_scale", "f32", {kRows, kGroups}, scales)};
  if (!symmetric) {
    const auto words =
        Transposed(PackColumns(Transposed(zeros, kGroups), kRows, bits), kRows * bits / 32);
    example.tensors.zeros =
        example.held.Add("q.weight_zero_point", "I32", {kRows * bits / 32, kGroups}, words);
  }
  example.quantization = {.method = QuantMethod::kCompressedTensors,
                          .schemes = {{.numbers = bits == 8 ? DType::kI8 : DType::kU4,
                                       .bits = bits,
                                       .group_cols = kGroup,
                                       .symmetric = symmetric}}};
  example.weights = WeightsOf(integers, scales, zeros);
  return example;
}

Example Numbers(DType dtype) {
  Example example;
  std::vector<uint8_t> bytes;
  for (const uint32_t integer : Integers(kRows, kCols, 8)) {
    const bool is_nan = dtype == DType::kFp8 && (integer & 127) == 127;
    bytes.push_back(static_cast<uint8_t>(is_nan ? 0 : integer));
  }
  constexpr int64_t kBlockRows = 8;
  const auto scales = Scales(kRows / kBlockRows * kGroups);
  example.tensors = {
      .layout = QuantizedTensors::Layout::kNumbers,
      .numbers =
          example.held.Add("q.weight", dtype == DType::kFp8 ? "fp8" : "i8", {kRows, kCols}, bytes),
      .scales = example.held.Add("q.weight_scale", "f32", {kRows / kBlockRows, kGroups}, scales)};
  example.quantization = {
      .method = QuantMethod::kFp8,
      .schemes = {{.numbers = dtype, .bits = 8, .group_rows = kBlockRows, .group_cols = kGroup}}};
  for (int64_t i = 0; i < kRows * kCols; ++i) {
    const uint8_t byte = bytes[static_cast<size_t>(i)];
    auto number = static_cast<float>(static_cast<int8_t>(byte));
    if (dtype == DType::kFp8) {
      // Sign, 4 bits of exponent over 7, 3 of the mantissa; no infinities.
      const int exponent = byte >> 3 & 15;
      const auto mantissa = static_cast<float>(byte & 7);
      number = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
      if (byte >= 128) number = -number;
    }
    const int64_t group = i / kCols / kBlockRows * kGroups + i % kCols / kGroup;
    example.weights.push_back(scales[static_cast<size_t>(group)] * number);
  }
  return example;
}

std::vector<uint8_t> PackPairs(const std::vector<uint32_t>& integers) {
  std::vector<uint8_t> packed;
  for (size_t i = 0; i < integers.size(); i += 2) {
    packed.push_back(static_cast<uint8_t>(integers[i] | integers[i + 1] << 4));
  }
  return packed;
}

Example Nvfp4() {
  Example example;
  const auto integers = Integers(kRows, kCols, 4);
  // FP8 numbers 2^(e − 7), e from 7 to 10.
  std::vector<uint8_t> scales;
  for (int64_t i = 0; i < kRows * kGroups; ++i)
    scales.push_back(static_cast<uint8_t>((7 + i % 4) << 3));
  example.tensors = {
      .layout = QuantizedTensors::Layout::kNvfp4,
      .numbers = example.held.Add("q.weight_packed", "U8", {kRows, kCols / 2}, PackPairs(integers)),
      .scales = example.held.Add("q.weight_scale", "fp8", {kRows, kGroups}, scales),
      .global_scale = example.held.Add("q.weight_global_scale", "f32", {1}, std::vector<float>{3})};
  example.quantization = {.method = QuantMethod::kCompressedTensors,
                          .schemes = {{.numbers = DType::kFp4, .group_cols = kGroup}}};
  for (int64_t i = 0; i < kRows * kCols; ++i) {
    const float scale = std::ldexp(1.0f, static_cast<int>(i / kGroup % 4)) / 3;
    example.weights.push_back(scale * kFp4[integers[static_cast<size_t>(i)]]);
  }
  return example;
}

}  // namespace baton
