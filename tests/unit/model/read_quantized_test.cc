#include "common/model/read_quantized.h"

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "kernels/dequantize.h"
#include "tests/unit/model/quantized_examples.h"

// Each layout gives the weights of its definition.
namespace baton {
namespace {

using testing::HasSubstr;
using Layout = QuantizedTensors::Layout;

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

TEST(ReadQuantized, Awq) {
  ExpectWeights(Awq());
}

TEST(ReadQuantized, PackedIntegers) {
  for (const int32_t bits : {4, 8}) {
    for (const bool symmetric : {false, true}) {
      SCOPED_TRACE(fmt::format("{} bits, symmetric {}", bits, symmetric));
      ExpectWeights(Packed(bits, symmetric));
    }
  }
}

TEST(ReadQuantized, NumbersOfAByteWithBlockScales) {
  ExpectWeights(Numbers(DType::kI8));
  ExpectWeights(Numbers(DType::kFp8));
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

}  // namespace
}  // namespace baton
