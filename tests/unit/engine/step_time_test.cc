#include "common/engine/step_time.h"

#include <random>

#include <gtest/gtest.h>

namespace baton {
namespace {

constexpr double kBase = 3.0;
constexpr double kToken = 0.5;
constexpr double kContext = 1e-4;

double TrueMs(int32_t tokens, int64_t context) {
  return kBase + kToken * tokens + kContext * static_cast<double>(context);
}

void Feed(StepTimeModel& model, std::mt19937& random, int steps, double outlier_every = 0) {
  std::uniform_real_distribution<double> noise(0.95, 1.05);
  for (int i = 0; i < steps; ++i) {
    const auto tokens = static_cast<int32_t>(1 + random() % 512);
    const int64_t context = tokens * static_cast<int64_t>(random() % 4000);
    double ms = TrueMs(tokens, context) * noise(random);
    if (outlier_every > 0 && random() % 100 < outlier_every) ms *= 100;
    model.Observe(tokens, context, FromSeconds(ms / 1e3));
  }
}

TEST(StepTimeTest, LearnsTheThreeTerms) {
  std::mt19937 random(5);
  StepTimeModel model;
  Feed(model, random, 500);
  EXPECT_NEAR(model.fit().token_ms, kToken, 0.05);
  EXPECT_NEAR(model.fit().token_context_ms, kContext, 1e-5);
  EXPECT_NEAR(model.PredictMs(256, 256 * 1000), TrueMs(256, 256 * 1000), 10);
}

TEST(StepTimeTest, OutliersMoveItLittle) {
  std::mt19937 random(6);
  StepTimeModel model;
  Feed(model, random, 100);
  Feed(model, random, 400, /*outlier_every=*/2);
  const double expected = TrueMs(256, 256 * 1000);
  EXPECT_NEAR(model.PredictMs(256, 256 * 1000), expected, expected * 0.3);
}

TEST(StepTimeTest, FollowsALastingChange) {
  std::mt19937 random(7);
  StepTimeModel model;
  for (int i = 0; i < 200; ++i) model.Observe(64, 64 * 100, std::chrono::milliseconds(10));
  for (int i = 0; i < 2000; ++i) model.Observe(64, 64 * 100, std::chrono::milliseconds(200));
  EXPECT_NEAR(model.PredictMs(64, 64 * 100), 200, 5);
}

TEST(StepTimeTest, TermsAreNeverNegativeAndAlwaysFinite) {
  std::mt19937 random(8);
  StepTimeModel model;
  EXPECT_EQ(model.PredictMs(100, 1000), 0);
  for (int i = 0; i < 1000; ++i) {
    // More tokens take less time: no model of this kind fits.
    const auto tokens = static_cast<int32_t>(1 + random() % 100);
    model.Observe(tokens, tokens, std::chrono::milliseconds(200 - tokens));
    EXPECT_GE(model.fit().base_ms, 0);
    EXPECT_GE(model.fit().token_ms, 0);
    EXPECT_GE(model.fit().token_context_ms, 0);
    EXPECT_LT(model.PredictMs(100, 100), 1000);
  }
}

}  // namespace
}  // namespace baton
