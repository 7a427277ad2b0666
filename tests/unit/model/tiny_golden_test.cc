#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/model/golden.h"
#include "tests/unit/model/step_runner.h"
#include "tests/unit/model/tiny_families.h"
#include "tests/unit/model/tiny_gguf.h"

namespace baton {
namespace {

// A greedy token may differ from the golden token only when the two best logits are this close.
constexpr double kMargin = 0.002;
constexpr double kLogitTolerance = 2e-3;
constexpr double kNllTolerance = 1e-4;

std::string TinyModel(const std::string& family) {
  return std::string(BATON_TEST_DATA) + "/tiny/" + family;
}

struct TinyCase {
  std::string name;                 // folder with the configuration and the outputs of transformers
  std::string weights;              // folder or GGUF file with the weights
  std::string prompts = "prompts";  // member of golden.json

  friend void PrintTo(const TinyCase& tested, std::ostream* out) { *out << tested.name; }
};

// A model and the instruction set of the CPU backend.
class TinyGolden : public testing::TestWithParam<std::tuple<TinyCase, CpuIsa>> {
 protected:
  void SetUp() override {
    const auto& [tested, isa] = GetParam();
    if (!Supported(isa)) GTEST_SKIP() << "this processor has no " << Name(isa);
    const std::string path = TinyModel(tested.name);
    auto model = OpenModel(TinyModelPath(tested.weights));
    ASSERT_TRUE(model.ok()) << Message(model.status());
    const auto spec = LoadModelSpec(path);
    ASSERT_TRUE(spec.ok()) << Message(spec.status());
    RunnerOptions options;
    options.isa = isa;
    auto runner = StepRunner::Create(*spec, *model->weights, options);
    ASSERT_TRUE(runner.ok()) << Message(runner.status());
    runner_ = *std::move(runner);
    auto prompts = ReadGoldenPrompts(path + "/golden.json", tested.prompts);
    ASSERT_TRUE(prompts.ok()) << Message(prompts.status());
    prompts_ = *std::move(prompts);
    ASSERT_GE(prompts_.size(), 4u);
  }

  std::unique_ptr<StepRunner> runner_;
  std::vector<GoldenPrompt> prompts_;
};

TEST_P(TinyGolden, GreedyTokensEqualTransformers) {
  for (const GoldenPrompt& golden : prompts_) {
    SCOPED_TRACE(golden.name);
    runner_->Reset();
    Logits logits = runner_->Step({0, golden.prompt}).front();
    for (const auto& [token, logit] : golden.first_top) {
      EXPECT_NEAR(logits[token], logit, kLogitTolerance) << "token " << token;
    }
    for (size_t i = 0; i < golden.tokens.size(); ++i) {
      const TokenId chosen = ArgMax(logits);
      if (chosen != golden.tokens[i]) {
        ASSERT_LT(golden.margins[i], kMargin) << "step " << i << " chose " << chosen;
        EXPECT_LT(logits[chosen] - logits[golden.tokens[i]], kMargin);
      }
      logits = runner_->Step({0, std::span(&golden.tokens[i], 1)}).front();
    }
  }
}

TEST_P(TinyGolden, PromptLikelihoodEqualsTransformers) {
  int compared = 0;
  for (const GoldenPrompt& golden : prompts_) {
    if (golden.mean_nll < 0) continue;
    SCOPED_TRACE(golden.name);
    runner_->Reset();
    const auto rows = runner_->RunAll(0, golden.prompt, 640);
    double sum = 0;
    for (size_t i = 0; i + 1 < golden.prompt.size(); ++i) {
      sum += NegativeLogLikelihood(rows[i], golden.prompt[i + 1]);
    }
    EXPECT_NEAR(
        sum / static_cast<double>(golden.prompt.size() - 1), golden.mean_nll, kNllTolerance);
    ++compared;
  }
  EXPECT_GE(compared, 3);
}

const TinyCase kFamilies[] = {{"llama_gqa", "llama_gqa"},
                              {"llama_mqa_tied", "llama_mqa_tied"},
                              {"llama3_rope", "llama3_rope"},
                              {"llama_linear", "llama3_rope"},
                              {"llama_yarn", "llama3_rope"},
                              {"mistral_window", "mistral_window"},
                              {"mixtral", "mixtral"},
                              {"qwen2", "qwen2"},
                              {"qwen3_moe", "qwen3_moe"},
                              {"glm4", "glm4"}};

// Without the portable kernels, which take longest: cpu_parity_test and cpu_bits_test compare them.
std::vector<TinyCase> MoreFamilies() {
  std::vector<TinyCase> cases = {{"phi3_longrope", "phi3_longrope"},
                                 {"phi3_longrope_short", "phi3_longrope"}};
  for (const char* family : kTinyFamilies) cases.push_back({family, family});
  return cases;
}

// Quantised weights. The outputs of these prompts are float32 arithmetic on the dequantised
// weights, also of models whose activations are quantised elsewhere.
std::vector<TinyCase> QuantizedModels() {
  std::vector<TinyCase> cases;
  for (const char* name : {"llama_gptq_int4",
                           "llama_gptq_int4_actorder",
                           "llama_gptq_int8",
                           "llama_awq_int4",
                           "llama_ct_w4a16",
                           "llama_ct_nvfp4",
                           "qwen3_moe_gptq_int4",
                           "qwen3_moe_awq_int4",
                           "qwen3_moe_ct_w4a16",
                           "gpt_oss_mxfp4"}) {
    cases.push_back({name, name});
  }
  for (const char* name : {"llama_ct_w8a8_int8",
                           "llama_ct_fp8_dynamic",
                           "llama_ct_fp8_static",
                           "qwen3_moe_ct_fp8_dynamic",
                           "qwen3_moe_fp8_block"}) {
    cases.push_back({name, name, "prompts_weights_only"});
  }
  cases.push_back({"gpt_oss_mxfp4", "gguf/gpt_oss_mxfp4.gguf"});
  return cases;
}

std::string NameOf(const testing::TestParamInfo<std::tuple<TinyCase, CpuIsa>>& test) {
  const auto& [tested, isa] = test.param;
  const bool gguf = tested.weights.starts_with("gguf/");
  return fmt::format("{}{}_{}", tested.name, gguf ? "_gguf" : "", Name(isa));
}

std::vector<CpuIsa> VectorIsas() {
  std::vector<CpuIsa> isas(std::begin(kCpuIsas), std::end(kCpuIsas));
  std::erase(isas, CpuIsa::kPortable);
  return isas;
}

INSTANTIATE_TEST_SUITE_P(Families,
                         TinyGolden,
                         testing::Combine(testing::ValuesIn(kFamilies),
                                          testing::ValuesIn(kCpuIsas)),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(MoreFamilies,
                         TinyGolden,
                         testing::Combine(testing::ValuesIn(MoreFamilies()),
                                          testing::ValuesIn(VectorIsas())),
                         NameOf);

INSTANTIATE_TEST_SUITE_P(Quantized,
                         TinyGolden,
                         testing::Combine(testing::ValuesIn(QuantizedModels()),
                                          testing::ValuesIn(kCpuIsas)),
                         NameOf);

}  // namespace
}  // namespace baton
