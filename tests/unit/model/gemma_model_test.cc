#include <cmath>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "tests/unit/model/golden.h"
#include "tests/unit/model/step_runner.h"

// Gemma 3 270M with its real weights beside llama.cpp (tests/data/golden/gemma3_270m/README.md).
namespace baton {
namespace {

constexpr double kMargin = 0.02;
constexpr double kFirstLogitTolerance = 0.02;

class GemmaModel : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto model = OpenModel(BATON_TEST_GEMMA);
    ASSERT_TRUE(model.ok()) << "This test needs gemma-3-270m-q4_k_m.gguf: `./dev test -L gemma` "
                               "fetches it. "
                            << Message(model.status());
    RunnerOptions options;
    options.limits = {1536, 256};
    options.kv_blocks = 1024;
    options.threads = 2;
    auto made = StepRunner::Create(model->spec, *model->weights, options);
    ASSERT_TRUE(made.ok()) << Message(made.status());
    runner_ = *std::move(made);
  }
  static void TearDownTestSuite() { runner_.reset(); }

  static std::unique_ptr<StepRunner> runner_;
};

std::unique_ptr<StepRunner> GemmaModel::runner_;

TEST_F(GemmaModel, GreedyTokensEqualLlamaCpp) {
  ASSERT_NE(runner_, nullptr) << "the model did not load";
  const auto prompts =
      ReadGoldenPrompts(std::string(BATON_TEST_DATA) + "/golden/gemma3_270m/greedy.json");
  ASSERT_TRUE(prompts.ok()) << Message(prompts.status());
  ASSERT_EQ(prompts->size(), 12u);
  for (const GoldenPrompt& golden : *prompts) {
    SCOPED_TRACE(golden.name);
    runner_->Reset();
    Logits logits = runner_->Step({0, golden.prompt}).front();
    for (const auto& [token, logit] : golden.first_top) {
      EXPECT_NEAR(logits[static_cast<size_t>(token)], logit, kFirstLogitTolerance);
    }
    for (size_t i = 0; i < golden.tokens.size(); ++i) {
      const TokenId chosen = ArgMax(logits);
      if (chosen != golden.tokens[i]) {
        EXPECT_LT(golden.margins[i], kMargin) << "step " << i << " chose " << chosen;
      }
      logits = runner_->Step({0, std::span(&golden.tokens[i], 1)}).front();
    }
  }
}

}  // namespace
}  // namespace baton
