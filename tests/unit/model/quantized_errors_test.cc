#include <limits>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "common/model/quantized_tensors.h"
#include "common/model/read_quantized.h"
#include "tests/unit/model/quantized_examples.h"

// Quantised matrices whose tensors are missing, or do not fit together.
namespace baton {
namespace {

using testing::HasSubstr;
using Layout = QuantizedTensors::Layout;

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
  ExpectError(example, "q.qweight holds u4 numbers of 4 bits, but quantization_config describes");
}

TEST(ReadQuantized, RefusesInputsAndOutputsThatDoNotFillWords) {
  Example gptq = Gptq(4, false, true);
  const std::vector<int32_t> none(2048);
  const auto error = [&](const Example& example, int64_t rows, int64_t cols) {
    const auto read = ReadQuantized(example.tensors, example.quantization, {rows, cols}, nullptr);
    return std::string(Message(read.status()));
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
