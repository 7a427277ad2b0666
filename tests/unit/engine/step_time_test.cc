#include "common/engine/step_time.h"

#include <random>

#include <gtest/gtest.h>

namespace baton {
namespace {

// Milliseconds for a large model on a GPU. A position costs a decode much more than a prompt token:
// the decode reads the position from memory, and the tokens of a chunk share the read.
constexpr double kBase = 3.9;
constexpr double kDecode = 0.02;
constexpr double kDecodeContext = 2.7e-5;
constexpr double kPromptToken = 0.0215;
constexpr double kPromptContext = 1e-6;

double TrueMs(const StepWork& work) {
  return kBase + kDecode * work.decodes +
         kDecodeContext * static_cast<double>(work.decode_context) +
         kPromptToken * work.prompt_tokens +
         kPromptContext * static_cast<double>(work.prompt_context);
}

class StepTimeTest : public testing::Test {
 protected:
  // Steps of 5 to 40 sequences with contexts of 2,000 to 6,000.
  StepWork Decodes() {
    const auto decodes = static_cast<int32_t>(5 + random_() % 36);
    return {.decodes = decodes,
            .decode_context = decodes * static_cast<int64_t>(2000 + random_() % 4000)};
  }
  // Decodes, and a chunk of a prompt in the same step.
  StepWork Mixed(int32_t most = 400) {
    StepWork work = Decodes();
    work.prompt_tokens = static_cast<int32_t>(2 + random_() % most);
    work.prompt_context = work.prompt_tokens * static_cast<int64_t>(random_() % 8000);
    return work;
  }
  void Observe(const StepWork& work, double times = 1) {
    std::uniform_real_distribution<double> noise(0.98, 1.02);
    model_.Observe(work, FromSeconds(TrueMs(work) * times * noise(random_) / 1e3));
  }
  void ExpectWithin(const StepWork& work, double share) {
    EXPECT_NEAR(model_.PredictMs(work), TrueMs(work), share * TrueMs(work));
  }

  std::mt19937_64 random_{5};
  StepTimeModel model_;
};

constexpr StepWork kMixed = {.decodes = 20,
                             .decode_context = int64_t{20} * 4000,
                             .prompt_tokens = 200,
                             .prompt_context = int64_t{200} * 3000};

TEST_F(StepTimeTest, LearnsItsTerms) {
  for (int i = 0; i < 300; ++i) {
    Observe(Decodes());
    Observe(Mixed());
  }
  const StepTimeModel::Fit& fit = model_.fit();
  EXPECT_NEAR(fit.base_ms, kBase, 0.2);
  EXPECT_NEAR(fit.decode_context_ms, kDecodeContext, 0.1 * kDecodeContext);
  EXPECT_NEAR(fit.prompt_token_ms, kPromptToken, 0.05 * kPromptToken);
  EXPECT_NEAR(fit.prompt_context_ms, kPromptContext, 0.3 * kPromptContext);
  ExpectWithin(kMixed, 0.02);
  EXPECT_GE(model_.max_prompt_tokens(), 390);
}

TEST_F(StepTimeTest, RemembersWhatPromptsCostThroughManyDecodes) {
  for (int i = 0; i < 50; ++i) Observe(Mixed());
  for (int i = 0; i < 300'000; ++i) Observe(Decodes());  // half an hour
  EXPECT_NEAR(model_.fit().prompt_token_ms, kPromptToken, 0.15 * kPromptToken);
  ExpectWithin(kMixed, 0.06);
}

TEST_F(StepTimeTest, RemembersWhatDecodesCostThroughManyPrompts) {
  for (int i = 0; i < 200; ++i) Observe(Decodes());
  for (int i = 0; i < 5000; ++i) {
    Observe(
        {.prompt_tokens = 2048, .prompt_context = 2048 * static_cast<int64_t>(random_() % 8000)});
  }
  ExpectWithin({.decodes = 20, .decode_context = int64_t{20} * 4000}, 0.1);
}

TEST_F(StepTimeTest, KnowsNothingOfPromptsBeforeTheFirst) {
  for (int i = 0; i < 1000; ++i) Observe(Decodes());
  EXPECT_EQ(model_.fit().prompt_token_ms, 0);
  EXPECT_EQ(model_.fit().prompt_context_ms, 0);
  EXPECT_EQ(model_.max_prompt_tokens(), 0);
  ExpectWithin({.decodes = 20, .decode_context = int64_t{20} * 4000}, 0.02);
}

TEST_F(StepTimeTest, BelievesTheFirstPromptAfterManyDecodes) {
  for (int i = 0; i < 1000; ++i) Observe(Decodes());
  for (int i = 0; i < 3; ++i)
    Observe({.prompt_tokens = 8192, .prompt_context = int64_t{8192} * 4096});
  ExpectWithin({.prompt_tokens = 8192, .prompt_context = int64_t{8192} * 4096}, 0.05);
}

// When all prompts are equal, the time is ascribed to the tokens: twice as many tokens are
// predicted to take twice the time.
TEST_F(StepTimeTest, AscribesTheTimeOfEqualPromptsToTheirTokens) {
  for (int i = 0; i < 100; ++i)
    Observe({.prompt_tokens = 4096, .prompt_context = int64_t{4096} * 2048});
  const double one =
      model_.PredictMs({.prompt_tokens = 4096, .prompt_context = int64_t{4096} * 2048});
  EXPECT_NEAR(model_.fit().prompt_token_ms * 4096, one, 0.05 * one);
}

TEST_F(StepTimeTest, OutliersMoveItLittle) {
  for (int i = 0; i < 100; ++i) Observe(Mixed());
  for (int i = 0; i < 400; ++i) Observe(Mixed(), random_() % 100 < 2 ? 100 : 1);
  ExpectWithin(kMixed, 0.3);
}

TEST_F(StepTimeTest, FollowsALastingChange) {
  const StepWork work = {.prompt_tokens = 64, .prompt_context = int64_t{64} * 100};
  for (int i = 0; i < 200; ++i) model_.Observe(work, std::chrono::milliseconds(10));
  for (int i = 0; i < 2000; ++i) model_.Observe(work, std::chrono::milliseconds(200));
  EXPECT_NEAR(model_.PredictMs(work), 200, 5);
}

// A new worker has measured a few short prompts. Some of them were slow for other reasons. This
// time must not be ascribed to their contexts, because a long prompt has hundreds of times as much
// context.
TEST_F(StepTimeTest, AFewNoisyShortPromptsForetellNoAbsurdTimeForLongOnes) {
  std::uniform_real_distribution<double> noise(0.3, 3);
  for (int trial = 0; trial < 2000; ++trial) {
    SCOPED_TRACE(trial);
    StepTimeModel model;
    double slowest_token_ms = 0;
    double fastest_step_ms = 1e9;
    const int steps = 1 + trial % 40;
    for (int i = 0; i < steps; ++i) {
      StepWork work;
      work.prompt_tokens = static_cast<int32_t>(1 + random_() % 128);
      work.prompt_context = work.prompt_tokens * static_cast<int64_t>(random_() % 128);
      if (trial % 2 == 1) work.decodes = static_cast<int32_t>(random_() % 4);
      work.decode_context = work.decodes * static_cast<int64_t>(random_() % 128);
      const double ms = TrueMs(work) * noise(random_);
      model.Observe(work, FromSeconds(ms / 1e3));
      slowest_token_ms = std::max(slowest_token_ms, ms / work.prompt_tokens);
      fastest_step_ms = std::min(fastest_step_ms, ms);
    }
    for (const int64_t tokens : {1'500, 100'000}) {
      const StepWork prompt = {.prompt_tokens = static_cast<int32_t>(tokens),
                               .prompt_context = tokens * tokens / 2};
      // The bound grows by its own size for each 1,000 positions to which a token attends on
      // average.
      const double at_most = 1 + static_cast<double>(tokens) / 2 / 1000;
      EXPECT_LE(model.PredictMs(prompt), at_most * slowest_token_ms * static_cast<double>(tokens));
      if (trial % 2 == 0) {
        EXPECT_GE(model.PredictMs(prompt), 0.9 * fastest_step_ms);
      }
    }
    const StepWork decodes = {.decodes = 64, .decode_context = int64_t{64} * 4000};
    EXPECT_LE(model.PredictMs(decodes), 1.1 * slowest_token_ms * 64 + 1e3);
  }
}

TEST_F(StepTimeTest, TermsAreNeverNegativeAndAlwaysFinite) {
  EXPECT_EQ(model_.PredictMs(kMixed), 0);
  for (int i = 0; i < 1000; ++i) {
    // More tokens take less time, so no non-negative model fits.
    const auto tokens = static_cast<int32_t>(1 + random_() % 100);
    StepWork work = {.decodes = tokens, .decode_context = tokens};
    if (i % 2 == 0) work = {.prompt_tokens = tokens, .prompt_context = tokens};
    model_.Observe(work, std::chrono::milliseconds(200 - tokens));
    const StepTimeModel::Fit& fit = model_.fit();
    for (const double term : {fit.base_ms,
                              fit.decode_ms,
                              fit.decode_context_ms,
                              fit.prompt_token_ms,
                              fit.prompt_context_ms}) {
      EXPECT_GE(term, 0);
    }
    EXPECT_LT(model_.PredictMs({.decodes = 50, .decode_context = 50}), 1000);
  }
}

}  // namespace
}  // namespace baton
