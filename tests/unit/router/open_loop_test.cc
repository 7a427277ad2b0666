#include <gtest/gtest.h>

#include "tests/unit/router/open_loop_sim.h"

namespace baton::router {
namespace {

// Prompts of 4,096 tokens that keep a prefill worker busy for two thirds of the time.
OpenLoop Busy(double itl_target_ms) {
  return {
      .arrivals = Arrivals(7, 60, 1), .itl_target_ms = itl_target_ms, .prefill_token_ms = 0.0218};
}

TEST(OpenLoopTest, WithoutATargetEveryPromptWaitsForThePrefillWorker) {
  const OpenLoopResult result = Simulate(Busy(0));
  EXPECT_EQ(result.served_alone, 0);
  EXPECT_GT(Quantile(result.ttft_ms, 0.99), 450);
}

TEST(OpenLoopTest, ATargetShortensTheWaitAndIsKept) {
  const OpenLoopResult before = Simulate(Busy(0));
  const OpenLoopResult result = Simulate(Busy(10));
  const auto requests = static_cast<double>(result.ttft_ms.size());
  EXPECT_GT(result.served_alone, 0.05 * requests);
  EXPECT_LT(result.served_alone, 0.2 * requests);
  EXPECT_LT(Quantile(result.ttft_ms, 0.5), 0.9 * Quantile(before.ttft_ms, 0.5));
  EXPECT_LT(Quantile(result.ttft_ms, 0.99), 0.75 * Quantile(before.ttft_ms, 0.99));
  EXPECT_LT(Quantile(result.worst_gap_ms, 0.5), 10.5);
  EXPECT_LT(result.slowest_step_ms, 10.3);
}

TEST(OpenLoopTest, ATargetThatTheStepsTakeAlreadyChangesNothing) {
  const OpenLoopResult result = Simulate(Busy(4.5));
  EXPECT_EQ(result.served_alone, 0);
}

TEST(OpenLoopTest, TheTimeAloneIsPredicted) {
  const OpenLoopResult result = Simulate(Busy(10));
  std::vector<double> ratio;
  for (size_t i = 0; i < result.ttft_ms.size(); ++i) {
    if (result.alone[i]) ratio.push_back(result.ttft_ms[i] / result.believed_ms[i]);
  }
  EXPECT_NEAR(Quantile(ratio, 0.5), 1, 0.1);
  EXPECT_GT(Quantile(ratio, 0.1), 0.75);
  EXPECT_LT(Quantile(ratio, 0.9), 1.25);
}

TEST(OpenLoopTest, AnIdleClusterHasNoNeedOfIt) {
  OpenLoop settings = Busy(10);
  settings.arrivals = Arrivals(0.5, 60, 2);
  EXPECT_EQ(Simulate(settings).served_alone, 0);
}

// More load than the prefill worker can serve: the decode worker takes the prompts that its target
// allows.
TEST(OpenLoopTest, AnOverloadIsSharedAndEnds) {
  OpenLoop settings = Busy(12);
  settings.arrivals = Arrivals(12, 20, 3);
  const OpenLoopResult before = Simulate([&] {
    OpenLoop same = settings;
    same.itl_target_ms = 0;
    return same;
  }());
  const OpenLoopResult result = Simulate(settings);
  EXPECT_GT(result.served_alone, 20);
  EXPECT_LT(Quantile(result.ttft_ms, 0.9), 0.6 * Quantile(before.ttft_ms, 0.9));
  EXPECT_LT(result.slowest_step_ms, 12.5);
}

}  // namespace
}  // namespace baton::router
