#include <cmath>
#include <string>

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

// The model is opened once for all tests of this file.
class RealModel : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (runner_ != nullptr) return;
    const std::string path = BATON_TEST_MODEL;
    auto model = OpenModel(path);
    ASSERT_TRUE(model.ok()) << "These tests need SmolLM2-135M-Instruct.Q4_1.gguf: `./dev test` "
                               "fetches it, or configure with -DBATON_TEST_MODEL=<path>. "
                            << Message(model.status());
    RunnerOptions options;
    options.limits = {1536, 256};
    options.threads = 2;
    auto runner = StepRunner::Create(model->spec, *model->weights, options);
    ASSERT_TRUE(runner.ok()) << Message(runner.status());
    runner_ = *std::move(runner);
  }
  void SetUp() override {
    ASSERT_NE(runner_, nullptr) << "the model did not load";
    runner_->Reset();
  }

  static std::unique_ptr<StepRunner> runner_;
};

std::unique_ptr<StepRunner> RealModel::runner_;

class RealModelPrompt : public RealModel, public testing::WithParamInterface<size_t> {};

constexpr size_t kPrompts = 10;

TEST_P(RealModelPrompt, GreedyTokensEqualTheReference) {
  const auto prompts = ReadGoldenPrompts(Golden("greedy.json"));
  ASSERT_TRUE(prompts.ok()) << Message(prompts.status());
  ASSERT_EQ(prompts->size(), kPrompts);
  const GoldenPrompt& golden = (*prompts)[GetParam()];
  SCOPED_TRACE(golden.name);
  Logits logits = runner_->Step({0, golden.prompt}).front();
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
    logits = runner_->Step({0, std::span(&golden.tokens[i], 1)}).front();
  }
  RecordProperty("differing_tokens", differing);
  RecordProperty("first_logit_error", std::to_string(first_error));
}

INSTANTIATE_TEST_SUITE_P(Prompts, RealModelPrompt, testing::Range(size_t{0}, kPrompts));

TEST_F(RealModel, LikelihoodEqualsTheReference) {
  const auto text = ReadFile(Golden("ppl.json"));
  ASSERT_TRUE(text.ok()) << Message(text.status());
  const auto json = nlohmann::json::parse(*text);
  ASSERT_EQ(json.at("texts").size(), 2u);
  for (const auto& entry : json.at("texts")) {
    SCOPED_TRACE(entry.at("name").get<std::string>());
    const auto ids = entry.at("ids").get<std::vector<TokenId>>();
    runner_->Reset();
    const auto rows = runner_->RunAll(0, ids, 256);
    double sum = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) sum += NegativeLogLikelihood(rows[i], ids[i + 1]);
    const double mean = sum / static_cast<double>(ids.size() - 1);
    EXPECT_NEAR(mean, entry.at("mean_nll").at("fp32").get<double>(), kNllTolerance);
    RecordProperty("mean_nll_" + entry.at("name").get<std::string>(), std::to_string(mean));
  }
}

}  // namespace
}  // namespace baton
