#include "common/model/quantize_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <random>

#include <gmock/gmock.h>

#include "common/base/check.h"
#include "common/base/mapped_file.h"
#include "common/model/describe_model.h"
#include "common/model/open_model.h"
#include "common/model/quantize_matrix.h"
#include "kernels/dequantize.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/model/safetensors_writer.h"
#include "tests/unit/model/step_runner.h"

namespace baton {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

std::string Tiny(const std::string& folder) {
  return std::string(BATON_TEST_DATA) + "/tiny/" + folder;
}

std::vector<float> RandomWeights(size_t count) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal(0, 0.05f);
  std::vector<float> weights(count);
  for (float& weight : weights) weight = normal(random);
  return weights;
}

TEST(QuantizeMatrix, FourBitsAreTheNearestIntegers) {
  constexpr int64_t kRows = 6;
  constexpr int64_t kCols = 64;
  constexpr int64_t kGroup = 32;
  auto weights = RandomWeights(kRows * kCols);
  std::fill_n(weights.begin(), kGroup, 0.0f);
  const auto quantised = QuantizeToFourBits({weights, kRows, kCols}, kGroup);
  ASSERT_TRUE(quantised.ok()) << Message(quantised.status());
  ASSERT_EQ(quantised->scales.size(), weights.size() / kGroup);
  EXPECT_EQ(quantised->scales[0], 1.0f) << "of zeros";
  std::vector<float> integers(weights.size());
  Dequantize(DType::kU4, quantised->numbers, integers);
  for (size_t i = 0; i < weights.size(); ++i) {
    const float scale = quantised->scales[i / kGroup];
    EXPECT_EQ(scale, BrainToFloat(FloatToBrain(scale)));
    EXPECT_LE(std::fabs(scale * (integers[i] - 8) - weights[i]), 0.52f * scale) << i;
  }
}

// Each FP8 number is itself, and what lies between two of them the nearer one.
TEST(QuantizeMatrix, Fp8IsTheNearestNumber) {
  std::vector<std::byte> bits;
  for (int i = 0; i < 256; ++i) {
    if ((i & 127) != 127) bits.push_back(static_cast<std::byte>(i));
  }
  std::vector<float> numbers(bits.size());
  Dequantize(DType::kFp8, bits, numbers);
  const auto count = static_cast<int64_t>(numbers.size());
  const auto same = QuantizeToFp8({numbers, 1, count}, 1024);
  ASSERT_TRUE(same.ok()) << Message(same.status());
  EXPECT_EQ(same->scales, std::vector<float>{1.0f});
  EXPECT_EQ(same->numbers, bits);

  std::mt19937 random(5);
  std::uniform_real_distribution<float> exponent(-12, 9);
  std::vector<float> between = {448.0f};  // so that the scale is 1
  for (int i = 0; i < 2000; ++i) between.push_back(std::min(448.0f, std::exp2(exponent(random))));
  const auto nearest = QuantizeToFp8({between, 1, std::ssize(between)}, 4096);
  ASSERT_TRUE(nearest.ok()) << Message(nearest.status());
  std::vector<float> got(between.size());
  Dequantize(DType::kFp8, nearest->numbers, got);
  for (size_t i = 0; i < between.size(); ++i) {
    float best = std::numeric_limits<float>::infinity();
    for (const float number : numbers) best = std::min(best, std::fabs(number - between[i]));
    EXPECT_EQ(std::fabs(got[i] - between[i]), best) << between[i];
  }
}

TEST(QuantizeMatrix, Fp8HasAScaleForEachBlock) {
  constexpr int64_t kRows = 5;
  constexpr int64_t kCols = 7;
  std::vector<float> weights(kRows * kCols, 1.0f);
  weights[4 * kCols + 6] = -896.0f;
  const auto quantised = QuantizeToFp8({weights, kRows, kCols}, 4);
  ASSERT_TRUE(quantised.ok()) << Message(quantised.status());
  const float small = 1.0f / 448;
  EXPECT_EQ(quantised->scales, (std::vector<float>{small, small, small, 2.0f}));
}

TEST(QuantizeMatrix, RefusesWeightsThatAreNotFinite) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    auto weights = RandomWeights(64);
    weights[40] = bad;
    const WeightsView view{weights, 2, 32};
    EXPECT_THAT(Message(QuantizeToFourBits(view, 32).status()), HasSubstr("weight (1, 8) is "));
    EXPECT_THAT(Message(QuantizeToFp8(view, 128).status()), HasSubstr("weight (1, 8) is "));
  }
}

std::vector<Logits> LogitsOf(const std::string& path) {
  auto model = OpenModel(path);
  BATON_CHECK(model.ok(), "{}", Message(model.status()));
  const auto runner = StepRunner::Create(model->spec, *model->weights);
  BATON_CHECK(runner.ok(), "{}", Message(runner.status()));
  EXPECT_THAT(model->weights->Unread(), IsEmpty());
  std::vector<TokenId> tokens;
  for (TokenId token = 3; token < 40; ++token) tokens.push_back(token * 5);
  return (*runner)->RunAll(0, tokens, 16);
}

// The correlation of both, over all rows.
double Correlation(const std::vector<Logits>& a, const std::vector<Logits>& b) {
  double ab = 0;
  double aa = 0;
  double bb = 0;
  for (size_t row = 0; row < a.size(); ++row) {
    for (size_t i = 0; i < a[row].size(); ++i) {
      ab += double{a[row][i]} * b[row][i];
      aa += double{a[row][i]} * a[row][i];
      bb += double{b[row][i]} * b[row][i];
    }
  }
  return ab / std::sqrt(aa * bb);
}

class QuantizeCheckpointTest : public testing::TestWithParam<const char*> {};

TEST_P(QuantizeCheckpointTest, TheCopyIsLikeTheModel) {
  const auto want = LogitsOf(Tiny(GetParam()));
  // Small random models choose other experts where logits of routers are close to each other.
  for (const auto& [format, least] :
       {std::pair(QuantizeFormat::kFp8, 0.97), std::pair(QuantizeFormat::kFourBits, 0.85)}) {
    const TemporaryFolder folder;
    const std::string copy = folder.path() + "/copy";
    const auto report = QuantizeCheckpoint(Tiny(GetParam()), copy, format);
    ASSERT_TRUE(report.ok()) << Message(report.status());
    EXPECT_GT(report->matrices, 10u);
    EXPECT_LT(report->bytes_written, report->bytes_read);
    EXPECT_GE(Correlation(want, LogitsOf(copy)), least);
    EXPECT_TRUE(std::filesystem::exists(copy + "/generation_config.json"));
    EXPECT_THAT(Message(QuantizeCheckpoint(copy, folder.path() + "/again", format).status()),
                HasSubstr("is quantised already"));
    EXPECT_THAT(Message(QuantizeCheckpoint(Tiny(GetParam()), copy, format).status()),
                HasSubstr("is not empty; name a new one"));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families,
    QuantizeCheckpointTest,
    testing::Values("llama_gqa", "qwen3_moe", "mixtral", "deepseek_v3", "qwen3_next"),
    [](const auto& test) { return std::string(test.param); });

TEST(QuantizeCheckpoint, WritesAnIndexOfSeveralFiles) {
  const std::string from = Tiny("glm4");
  HeldTensors first = TensorsIn(from);
  HeldTensors second;
  const std::string moved = "model.layers.1.self_attn.o_proj.weight";
  second.insert(first.extract(moved));
  const TemporaryFolder folder;
  folder.Write("config.json", *ReadFile(from + "/config.json"));
  folder.Write("a.safetensors", SafetensorsFileOf(first));
  folder.Write("b.safetensors", SafetensorsFileOf(second));
  folder.Write("model.safetensors.index.json",
               IndexOf({{"a.safetensors", first}, {"b.safetensors", second}}));
  folder.Write("chat_template.jinja", "{{ messages }}");
  const TemporaryFolder to;
  const auto report =
      QuantizeCheckpoint(folder.path(), to.path() + "/copy", QuantizeFormat::kFourBits);
  ASSERT_TRUE(report.ok()) << Message(report.status());
  EXPECT_GT(Correlation(LogitsOf(from), LogitsOf(to.path() + "/copy")), 0.9);
  EXPECT_EQ(*ReadFile(to.path() + "/copy/chat_template.jinja"), "{{ messages }}");
}

TEST(QuantizeCheckpoint, RefusesWhatItCannotRead) {
  const TemporaryFolder to;
  const auto error = [&](const std::string& from) {
    const auto report = QuantizeCheckpoint(from, to.path() + "/copy", QuantizeFormat::kFp8);
    return std::string(Message(report.status()));
  };
  EXPECT_THAT(error(Tiny("gguf")), HasSubstr("config.json"));
  EXPECT_THAT(error(Tiny("README.md")), HasSubstr("only Hugging Face directories"));
  const TemporaryFolder folder;
  folder.Write("config.json", *ReadFile(Tiny("llama_gqa") + "/config.json"));
  HeldTensors tensors = TensorsIn(Tiny("llama_gqa"));
  HeldTensor& tensor = tensors.at("model.layers.1.self_attn.o_proj.weight");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  ASSERT_EQ(tensor.dtype, DType::kF32);
  std::memcpy(tensor.bytes.data() + 8, &nan, sizeof(nan));
  folder.Write("model.safetensors", SafetensorsFileOf(tensors));
  EXPECT_THAT(error(folder.path()),
              HasSubstr("tensor model.layers.1.self_attn.o_proj.weight: weight (0, 2) is nan"));
  EXPECT_FALSE(std::filesystem::exists(to.path() + "/copy/config.json")) << "it would be a model";
}

}  // namespace
}  // namespace baton
