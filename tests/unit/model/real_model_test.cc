#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/mapped_file.h"
#include "tests/unit/model/golden.h"
#include "tests/unit/model/step_runner.h"

namespace baton {
namespace {

// The CPU backend computes in float32 with the weights of the file, and this test uses a float32 KV
// cache. So the bounds for float32 apply (tests/data/golden/smollm2/README.md), except the bound
// for single logits.
constexpr double kMargin = 0.002;
constexpr double kFirstLogitTolerance = 0.02;
constexpr double kNllTolerance = 1e-4;

std::string Golden(const std::string& name) {
  return std::string(BATON_TEST_DATA) + "/golden/smollm2/" + name;
}

// The model is opened once for all tests of this file that use the same instruction set.
class RealModel {
 public:
  static StepRunner* Open(CpuIsa isa) {
    static std::map<CpuIsa, std::unique_ptr<StepRunner>> runners;
    std::unique_ptr<StepRunner>& runner = runners[isa];
    if (runner == nullptr) Load(isa, runner);
    if (runner != nullptr) runner->Reset();
    return runner.get();
  }

 private:
  static void Load(CpuIsa isa, std::unique_ptr<StepRunner>& runner) {
    auto model = OpenModel(BATON_TEST_MODEL);
    ASSERT_TRUE(model.ok()) << "These tests need SmolLM2-135M-Instruct.Q4_1.gguf: `./dev test` "
                               "fetches it, or configure with -DBATON_TEST_MODEL=<path>. "
                            << Message(model.status());
    RunnerOptions options;
    options.limits = {1536, 256};
    options.threads = 2;
    options.isa = isa;
    auto made = StepRunner::Create(model->spec, *model->weights, options);
    ASSERT_TRUE(made.ok()) << Message(made.status());
    runner = *std::move(made);
  }
};

constexpr size_t kPrompts = 10;

using Prompt = std::tuple<CpuIsa, size_t>;

class RealModelPrompt : public testing::TestWithParam<Prompt> {};

TEST_P(RealModelPrompt, GreedyTokensEqualTheReference) {
  const auto& [isa, index] = GetParam();
  if (!Supported(isa)) GTEST_SKIP() << "this processor has no " << Name(isa);
  StepRunner* const runner = RealModel::Open(isa);
  ASSERT_NE(runner, nullptr) << "the model did not load";
  const auto prompts = ReadGoldenPrompts(Golden("greedy.json"));
  ASSERT_TRUE(prompts.ok()) << Message(prompts.status());
  ASSERT_EQ(prompts->size(), kPrompts);
  const GoldenPrompt& golden = (*prompts)[index];
  SCOPED_TRACE(golden.name);
  Logits logits = runner->Step({0, golden.prompt}).front();
  double first_error = 0;
  for (const auto& [token, logit] : golden.first_top) {
    first_error = std::max(first_error, std::abs(logits[token] - logit));
  }
  EXPECT_LT(first_error, kFirstLogitTolerance);
  int differing = 0;
  for (size_t i = 0; i < golden.tokens.size(); ++i) {
    const TokenId chosen = ArgMax(logits);
    if (chosen != golden.tokens[i]) {
      ++differing;
      ASSERT_LT(golden.margins[i], kMargin) << "step " << i << " chose " << chosen;
    }
    logits = runner->Step({0, std::span(&golden.tokens[i], 1)}).front();
  }
  RecordProperty("differing_tokens", differing);
  RecordProperty("first_logit_error", std::to_string(first_error));
}

INSTANTIATE_TEST_SUITE_P(Prompts,
                         RealModelPrompt,
                         testing::Combine(testing::ValuesIn(kCpuIsas),
                                          testing::Range(size_t{0}, kPrompts)),
                         [](const auto& test) {
                           return fmt::format(
                               "{}_{}", Name(std::get<0>(test.param)), std::get<1>(test.param));
                         });

class RealModelText : public testing::TestWithParam<CpuIsa> {};

TEST_P(RealModelText, LikelihoodEqualsTheReference) {
  if (!Supported(GetParam())) GTEST_SKIP() << "this processor has no " << Name(GetParam());
  StepRunner* const runner = RealModel::Open(GetParam());
  ASSERT_NE(runner, nullptr) << "the model did not load";
  const auto text = ReadFile(Golden("ppl.json"));
  ASSERT_TRUE(text.ok()) << Message(text.status());
  const auto json = nlohmann::json::parse(*text);
  ASSERT_EQ(json.at("texts").size(), 2u);
  for (const auto& entry : json.at("texts")) {
    SCOPED_TRACE(entry.at("name").get<std::string>());
    const auto ids = entry.at("ids").get<std::vector<TokenId>>();
    runner->Reset();
    const auto rows = runner->RunAll(0, ids, 256);
    double sum = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) sum += NegativeLogLikelihood(rows[i], ids[i + 1]);
    const double mean = sum / static_cast<double>(ids.size() - 1);
    EXPECT_NEAR(mean, entry.at("mean_nll").at("fp32").get<double>(), kNllTolerance);
    RecordProperty("mean_nll_" + entry.at("name").get<std::string>(), std::to_string(mean));
  }
}

INSTANTIATE_TEST_SUITE_P(Texts, RealModelText, testing::ValuesIn(kCpuIsas), [](const auto& test) {
  return std::string(Name(test.param));
});

}  // namespace
}  // namespace baton
