#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "common/base/mapped_file.h"
#include "common/model/describe_model.h"
#include "common/model/open_model.h"
#include "kernels/dequantize.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/model/safetensors_writer.h"
#include "tests/unit/model/step_runner.h"

// Families whose checkpoints store several matrices in one tensor, or compute with them in another
// form, with quantised weights.
namespace baton {
namespace {

constexpr int64_t kBlock = 32;  // rows and columns of an FP8 block

// A matrix in FP8 with the scales of its blocks, and its weights.
struct Fp8Matrix {
  HeldTensor numbers;
  HeldTensor scales;
  HeldTensor weights;
};

Fp8Matrix RandomFp8(const std::vector<int64_t>& shape, std::mt19937& random) {
  const int64_t blocks = (shape[1] + kBlock - 1) / kBlock;
  std::vector<float> scales(static_cast<size_t>((shape[0] + kBlock - 1) / kBlock * blocks));
  for (float& scale : scales) scale = std::ldexp(1.0f, -12 - static_cast<int>(random() % 3));
  std::vector<std::byte> numbers(static_cast<size_t>(shape[0] * shape[1]));
  for (std::byte& number : numbers) {
    number = static_cast<std::byte>(random() & 0xff);
    if ((number & std::byte{0x7f}) == std::byte{0x7f}) number = std::byte{1};  // NaN
  }
  std::vector<float> weights(numbers.size());
  Dequantize(DType::kFp8, numbers, weights);
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto row = static_cast<int64_t>(i) / shape[1];
    const auto col = static_cast<int64_t>(i) % shape[1];
    weights[i] *= scales[static_cast<size_t>(row / kBlock * blocks + col / kBlock)];
  }
  const auto bytes = [](const std::vector<float>& floats) {
    const auto view = std::as_bytes(std::span(floats));
    return std::vector<std::byte>(view.begin(), view.end());
  };
  const auto block_rows = static_cast<int64_t>(scales.size()) / blocks;
  return {.numbers = {DType::kFp8, shape, numbers},
          .scales = {DType::kF32, {block_rows, blocks}, bytes(scales)},
          .weights = {DType::kF32, shape, bytes(weights)}};
}

class QuantizedModel : public testing::TestWithParam<const char*> {
 protected:
  static OpenedModel Open(const TemporaryFolder& folder) {
    auto model = OpenModel(folder.path());
    BATON_CHECK(model.ok(), "{}", Message(model.status()));
    return *std::move(model);
  }

  static std::vector<Logits> LogitsOf(const OpenedModel& model) {
    const auto runner = StepRunner::Create(model.spec, *model.weights);
    BATON_CHECK(runner.ok(), "{}", Message(runner.status()));
    std::vector<TokenId> tokens;
    for (TokenId token = 3; token < 40; ++token) tokens.push_back(token * 5);
    return (*runner)->RunAll(0, tokens, 16);
  }
};

TEST_P(QuantizedModel, HasTheBitsOfItsWeights) {
  const std::string path = std::string(BATON_TEST_DATA) + "/tiny/" + GetParam();
  HeldTensors quantised = TensorsIn(path);
  HeldTensors plain = quantised;
  std::mt19937 random(3);
  int matrices = 0;
  for (const auto& [name, tensor] : TensorsIn(path)) {
    const bool linear = name.find("_proj") != std::string::npos && name.ends_with(".weight");
    if (!linear || tensor.shape.size() != 2) continue;
    const Fp8Matrix fp8 = RandomFp8(tensor.shape, random);
    quantised[name] = fp8.numbers;
    quantised[name + "_scale_inv"] = fp8.scales;
    plain[name] = fp8.weights;
    ++matrices;
  }
  ASSERT_GT(matrices, 6);
  auto config = nlohmann::json::parse(*ReadFile(path + "/config.json"));
  const TemporaryFolder plain_folder;
  plain_folder.Write("config.json", config.dump());
  plain_folder.Write("model.safetensors", SafetensorsFileOf(plain));
  config["quantization_config"] = {{"quant_method", "fp8"},
                                   {"weight_block_size", {kBlock, kBlock}}};
  const TemporaryFolder quantised_folder;
  quantised_folder.Write("config.json", config.dump());
  quantised_folder.Write("model.safetensors", SafetensorsFileOf(quantised));

  const OpenedModel model = Open(quantised_folder);
  const auto got = LogitsOf(model);
  EXPECT_TRUE(model.weights->Unread().empty());
  const auto want = LogitsOf(Open(plain_folder));
  ASSERT_EQ(got.size(), want.size());
  for (size_t row = 0; row < want.size(); ++row) {
    ASSERT_TRUE(std::isfinite(want[row].front())) << row;
    ASSERT_EQ(std::memcmp(got[row].data(), want[row].data(), want[row].size() * sizeof(float)), 0)
        << "row " << row;
  }
}

INSTANTIATE_TEST_SUITE_P(Families,
                         QuantizedModel,
                         testing::Values("deepseek_v2_qlora",
                                         "deepseek_v3",
                                         "deepseek_v32",
                                         "falcon_h1",
                                         "jamba",
                                         "kimi_linear",
                                         "nemotron_h",
                                         "phi3",
                                         "qwen2_moe",
                                         "qwen3_5_moe_text",
                                         "qwen3_next"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace baton
