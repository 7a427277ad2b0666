#include "common/model/read_quantized.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "kernels/dequantize.h"

// Each layout, with integers that the test packs by the definition of the format.
namespace baton {
namespace {

using testing::HasSubstr;
using Layout = QuantizedTensors::Layout;

constexpr int64_t kRows = 16;
constexpr int64_t kCols = 64;
constexpr int64_t kGroup = 16;
constexpr int64_t kGroups = kCols / kGroup;
constexpr QuantizedPlace kPlace{.rows = kRows, .cols = kCols};

// Tensors with their bytes.
class Held {
 public:
  template <class Number>
  FileTensor* Add(const std::string& name,
                  std::string_view type,
                  std::vector<int64_t> shape,
                  const std::vector<Number>& numbers) {
    std::vector<std::byte>& bytes = *bytes_.emplace_back(
        std::make_unique<std::vector<std::byte>>(numbers.size() * sizeof(Number)));
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
    auto& tensor = *tensors_.emplace_back(std::make_unique<FileTensor>());
    tensor.name = name;
    tensor.shape = std::move(shape);
    tensor.bytes = bytes;
    tensor.file = "model.safetensors";
    if (type == "f32") tensor.dtype = DType::kF32;
    if (type == "bf16") tensor.dtype = DType::kBF16;
    if (type == "i8") tensor.dtype = DType::kI8;
    if (type == "fp8") tensor.dtype = DType::kFp8;
    if (type == "I32" || type == "U8") tensor.other_type = std::string(type);
    return &tensor;
  }

 private:
  std::vector<std::unique_ptr<std::vector<std::byte>>> bytes_;
  std::vector<std::unique_ptr<FileTensor>> tensors_;
};

// Integers [rows][cols] in [0, 2^bits), by a generator.
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

// A matrix in the making: its tensors, and the weights that it must have.
struct Example {
  Held held;
  QuantizedTensors tensors;
  QuantizationConfig quantization;
  std::vector<float> weights;  // [rows][cols]

  std::string Error() const {
    QuantizedMemory memory;
    const auto read = ReadQuantized(tensors, quantization, kPlace, &memory);
    return read.ok() ? "read" : std::string(Message(read.status()));
  }
  // Also without memory: files are checked before memory is taken.
  std::string ErrorOfShapes() const {
    const auto read = ReadQuantized(tensors, quantization, kPlace, nullptr);
    return read.ok() ? "read" : std::string(Message(read.status()));
  }
};

void ExpectWeights(const Example& example) {
  ASSERT_EQ(example.ErrorOfShapes(), "read");
  QuantizedMemory memory;
  const auto matrix = ReadQuantized(example.tensors, example.quantization, kPlace, &memory);
  ASSERT_TRUE(matrix.ok()) << Message(matrix.status());
  std::vector<float> row(kCols);
  for (int64_t r = 0; r < kRows; ++r) {
    DequantizeRow(*matrix, r, row);
    for (int64_t c = 0; c < kCols; ++c) {
      ASSERT_EQ(row[static_cast<size_t>(c)], example.weights[static_cast<size_t>(r * kCols + c)])
          << "row " << r << ", column " << c;
    }
  }
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

Example Gptq(int32_t bits, bool symmetric, bool zeros_less_by_one, bool act_order = false) {
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
      .layout = Layout::kGptq,
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

TEST(ReadQuantized, GptqOfEachSizeAndFormat) {
  for (const int32_t bits : {2, 3, 4, 8}) {
    for (const bool symmetric : {false, true}) {
      for (const bool less : {false, true}) {
        SCOPED_TRACE(fmt::format("{} bits, symmetric {}, less {}", bits, symmetric, less));
        ExpectWeights(Gptq(bits, symmetric, less));
      }
    }
  }
}

TEST(ReadQuantized, GptqWithGroupsInAnotherOrder) {
  for (const int32_t bits : {4, 8}) ExpectWeights(Gptq(bits, false, true, /*act_order=*/true));
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
      .layout = Layout::kAwq,
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

TEST(ReadQuantized, Awq) {
  ExpectWeights(Awq());
}

Example Packed(int32_t bits, bool symmetric) {
  Example example;
  const auto integers = Integers(kRows, kCols, bits);
  const auto scales = Scales(kRows * kGroups);
  std::vector<uint32_t> zeros(static_cast<size_t>(kRows * kGroups), 1u << (bits - 1));
  if (!symmetric) zeros = Integers(kRows, kGroups, bits);
  example.tensors = {
      .layout = Layout::kPacked,
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

TEST(ReadQuantized, PackedIntegers) {
  for (const int32_t bits : {4, 8}) {
    for (const bool symmetric : {false, true}) {
      SCOPED_TRACE(fmt::format("{} bits, symmetric {}", bits, symmetric));
      ExpectWeights(Packed(bits, symmetric));
    }
  }
}

// One byte a number: int8, or FP8 by its table, with a scale for each block of 8 x 16.
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
      .layout = Layout::kNumbers,
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

TEST(ReadQuantized, NumbersOfAByteWithBlockScales) {
  ExpectWeights(Numbers(DType::kI8));
  ExpectWeights(Numbers(DType::kFp8));
}

constexpr float kFp4[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

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
      .layout = Layout::kNvfp4,
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

TEST(ReadQuantized, Nvfp4DividesByTheGlobalScale) {
  ExpectWeights(Nvfp4());
}

// The second of three matrices.
TEST(ReadQuantized, Mxfp4OfAStack) {
  constexpr int64_t kInRow = kCols / 32;
  const auto integers = Integers(3 * kRows, kCols, 4);
  std::vector<uint8_t> exponents;
  for (int64_t i = 0; i < 3 * kRows * kInRow; ++i) {
    exponents.push_back(static_cast<uint8_t>(i == kRows * kInRow ? 0 : 120 + i % 16));
  }
  Held held;
  QuantizedTensors tensors = {
      .layout = Layout::kMxfp4,
      .numbers = held.Add("e_blocks", "U8", {3, kRows, kInRow, 16}, PackPairs(integers)),
      .scales = held.Add("e_scales", "U8", {3, kRows, kInRow}, exponents)};
  const QuantizedPlace place{.rows = kRows, .cols = kCols, .slice = 1, .slices = 3};
  QuantizedMemory memory;
  const auto matrix = ReadQuantized(tensors, {}, place, &memory);
  ASSERT_TRUE(matrix.ok()) << Message(matrix.status());
  std::vector<float> row(kCols);
  for (int64_t r = 0; r < kRows; ++r) {
    DequantizeRow(*matrix, r, row);
    for (int64_t c = 0; c < kCols; ++c) {
      const auto at = static_cast<size_t>((kRows + r) * kCols + c);
      const int exponent = exponents[at / 32] - 127;
      ASSERT_EQ(row[static_cast<size_t>(c)], std::ldexp(kFp4[integers[at]], exponent)) << r << c;
    }
  }
  exponents[static_cast<size_t>(kRows * kInRow + 1)] = 255;
  tensors.scales = held.Add("e_scales", "U8", {3, kRows, kInRow}, exponents);
  EXPECT_THAT(Message(ReadQuantized(tensors, {}, place, &memory).status()),
              HasSubstr("e_scales has the exponent 255, which is NaN"));
  EXPECT_TRUE(ReadQuantized(tensors, {}, {kRows, kCols, 2, 3}, &memory).ok()) << "another matrix";
}

// Rows in another order, also of groups of several rows, and of a part of a matrix.
TEST(ReadQuantized, TakesRows) {
  for (const Example& example :
       {Gptq(4, false, true, true), Packed(8, true), Numbers(DType::kFp8)}) {
    QuantizedMemory memory;
    QuantizedMemory taken_memory;
    const auto matrix = ReadQuantized(example.tensors, example.quantization, kPlace, &memory);
    ASSERT_TRUE(matrix.ok()) << Message(matrix.status());
    const std::vector<int64_t> rows = {3, 0, 15, 9};
    const HostMatrix taken = TakeQuantizedRows(*matrix, rows, taken_memory);
    ASSERT_EQ(taken.rows, 4);
    std::vector<float> want(kCols);
    std::vector<float> got(kCols);
    for (size_t i = 0; i < rows.size(); ++i) {
      DequantizeRow(*matrix, rows[i], want);
      DequantizeRow(taken, static_cast<int64_t>(i), got);
      EXPECT_EQ(want, got) << "row " << rows[i];
    }
  }
}

// Both without memory and with it.
void ExpectError(const Example& example, std::string_view error) {
  EXPECT_THAT(example.ErrorOfShapes(), HasSubstr(std::string(error)));
  EXPECT_THAT(example.Error(), HasSubstr(std::string(error)));
}

TEST(ReadQuantized, RefusesShapesAndTypes) {
  Example example = Gptq(4, false, true);
  Held& held = example.held;
  const QuantizedTensors good = example.tensors;
  const std::vector<int32_t> none(2048);
  const auto numbers = [&](std::vector<int64_t> shape, std::string_view type = "I32") {
    example.tensors = good;
    example.tensors.numbers = held.Add("q.qweight", type, std::move(shape), none);
  };
  numbers({kCols / 8 - 1, kRows});
  ExpectError(example, "q.qweight");
  numbers({kCols / 8, kRows - 1});
  ExpectError(example, "tensor q.qweight has shape [8, 15]; expected [8, 16]");
  numbers({kCols / 8});
  ExpectError(example, "q.qweight has shape [8]");
  numbers({});
  ExpectError(example, "q.qweight has shape []");
  numbers({kCols / 8, kRows}, "f32");
  ExpectError(example, "q.qweight is of f32; expected I32");
  example.tensors = good;
  example.tensors.scales = held.Add("q.scales", "f32", {kGroups, kRows - 1}, none);
  ExpectError(example, "q.scales has shape [4, 15]; expected [4, 16]");
  example.tensors.scales = held.Add("q.scales", "I32", {kGroups, kRows}, none);
  ExpectError(example, "q.scales is of I32; expected f32, f16 or bf16");
  example.tensors = good;
  example.tensors.zeros = held.Add("q.qzeros", "I32", {kGroups, kRows / 8 + 1}, none);
  ExpectError(example, "q.qzeros has shape [4, 3]; expected [4, 2]");
  example.tensors = good;
  example.tensors.group_indices = held.Add("q.g_idx", "I32", {kCols - 1}, none);
  ExpectError(example, "q.g_idx has shape [63]; expected [64]");
  example.tensors = good;
  example.quantization.schemes[0].bits = 8;
  example.quantization.schemes[0].numbers = DType::kI8;
  ExpectError(example, "q.qweight holds u4 numbers of 4 bits, of which quantization_config says");
}

TEST(ReadQuantized, RefusesInputsAndOutputsThatDoNotFillWords) {
  Example gptq = Gptq(4, false, true);
  const std::vector<int32_t> none(2048);
  const auto error = [&](const Example& example, int64_t rows, int64_t cols) {
    return Message(
        ReadQuantized(example.tensors, example.quantization, {rows, cols}, nullptr).status());
  };
  gptq.quantization.schemes[0].group_cols = 0;
  gptq.tensors.numbers = gptq.held.Add("q.qweight", "I32", {1, kRows}, none);
  gptq.tensors.scales = gptq.held.Add("q.scales", "f32", {1, kRows}, none);
  EXPECT_THAT(error(gptq, kRows, 9), HasSubstr("9 inputs"));
  Example awq = Awq();
  awq.quantization.schemes[0].group_cols = 0;
  awq.tensors.numbers = awq.held.Add("q.qweight", "I32", {kCols, 2}, none);
  awq.tensors.scales = awq.held.Add("q.scales", "f32", {1, 15}, none);
  awq.tensors.zeros = awq.held.Add("q.qzeros", "I32", {1, 2}, none);
  EXPECT_THAT(error(awq, 15, kCols), HasSubstr("15 outputs"));
}

TEST(ReadQuantized, RefusesScalesAndGroupsThatAreNotValid) {
  Example example = Gptq(4, false, true);
  const QuantizedTensors good = example.tensors;
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    auto scales = Scales(kRows * kGroups);
    scales[17] = bad;
    example.tensors.scales = example.held.Add("q.scales", "f32", {kGroups, kRows}, scales);
    EXPECT_THAT(example.Error(), HasSubstr("q.scales has a scale of "));
    EXPECT_THAT(example.Error(), HasSubstr("all must be finite"));
  }
  example.tensors = good;
  const auto with_groups = [&](size_t input, int32_t group) {
    std::vector<int32_t> groups;
    for (int32_t col = 0; col < kCols; ++col) groups.push_back(col / static_cast<int32_t>(kGroup));
    groups[input] = group;
    example.tensors.group_indices = example.held.Add("q.g_idx", "I32", {kCols}, groups);
    return example.Error();
  };
  EXPECT_THAT(with_groups(5, -1),
              HasSubstr("q.g_idx has group -1 for input 5; it must be in [0, 4)"));
  EXPECT_THAT(with_groups(63, 4), HasSubstr("q.g_idx has group 4 for input 63"));
  EXPECT_THAT(with_groups(0, 3), HasSubstr("q.g_idx has 15 inputs of group 0; expected 16"));
  EXPECT_EQ(with_groups(0, 0), "read");

  Example nvfp4 = Nvfp4();
  for (const float bad : {0.0f, std::numeric_limits<float>::quiet_NaN()}) {
    nvfp4.tensors.global_scale =
        nvfp4.held.Add("q.weight_global_scale", "f32", {1}, std::vector<float>{bad});
    EXPECT_THAT(nvfp4.Error(), HasSubstr("q.weight_global_scale is "));
  }
}

// Groups whose weights are all 0 have it.
TEST(ReadQuantized, AcceptsAScaleOfZero) {
  Example example = Gptq(4, true, true);
  auto scales = Scales(kRows * kGroups);
  scales[0] = 0;
  example.tensors.scales = example.held.Add("q.scales", "f32", {kGroups, kRows}, scales);
  EXPECT_EQ(example.Error(), "read");
}

TEST(ReadQuantized, WantsZeroPointsOfWeightsThatAreNotSymmetric) {
  Example example = Packed(4, false);
  example.tensors.zeros = nullptr;
  ExpectError(example, "tensor q.weight_zero_point is missing");
}

TEST(FindQuantized, TellsTheLayoutByTheNames) {
  Held held;
  std::map<std::string, FileTensor*> tensors;
  const auto add = [&](const std::string& name, std::string_view type) {
    tensors[name] = held.Add(name, type, {1}, std::vector<int32_t>{0});
  };
  const auto find = [&](const QuantizationConfig& config = {.method = QuantMethod::kGptq}) {
    return FindQuantized("q.weight", config, [&](const std::string& name) -> const FileTensor* {
      const auto found = tensors.find(name);
      return found == tensors.end() ? nullptr : found->second;
    });
  };
  EXPECT_FALSE(find()->has_value());
  add("q.weight", "bf16");
  EXPECT_FALSE(find()->has_value()) << "it is not quantised";
  add("q.weight", "fp8");
  EXPECT_THAT(Message(find().status()),
              HasSubstr("tensor q.weight_scale is missing beside others of q"));
  EXPECT_THAT(Message(find({.method = QuantMethod::kFp8}).status()),
              HasSubstr("tensor q.weight_scale_inv is missing"));
  add("q.weight_scale_inv", "f32");
  EXPECT_EQ((*find({.method = QuantMethod::kFp8}))->layout, Layout::kNumbers);
  add("q.weight_scale", "f32");
  EXPECT_EQ((*find())->scales, tensors["q.weight_scale"]);
  add("q.weight_packed", "I32");
  EXPECT_EQ((*find())->layout, Layout::kPacked);
  add("q.weight_packed", "U8");
  EXPECT_THAT(Message(find().status()), HasSubstr("q.weight_global_scale is missing"));
  add("q.weight_global_scale", "f32");
  EXPECT_EQ((*find())->layout, Layout::kNvfp4);
  add("q.qweight", "I32");
  EXPECT_THAT(Message(find().status()), HasSubstr("q.scales is missing"));
  add("q.scales", "f32");
  EXPECT_THAT(Message(find().status()), HasSubstr("q.qzeros is missing"));
  add("q.qzeros", "I32");
  EXPECT_EQ((*find())->layout, Layout::kGptq);
  EXPECT_EQ((*find({.method = QuantMethod::kAwq}))->layout, Layout::kAwq);
  EXPECT_THAT(Message(find({.method = QuantMethod::kGptq, .act_order = true}).status()),
              HasSubstr("q.g_idx is missing"));
  tensors.erase("q.qweight");
  tensors.erase("q.weight_packed");
  tensors.erase("q.weight");
  EXPECT_THAT(Message(find().status()), HasSubstr("q.qweight is missing"));
}

}  // namespace
}  // namespace baton
