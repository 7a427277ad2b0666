#include <gtest/gtest.h>

#include "common/engine/scheduler.h"
#include "tests/fakes/engine_harness.h"

namespace baton {
namespace {

constexpr Time kNow = Time{} + std::chrono::hours(1);

// Steps take 5 ms and 0.02 ms a token, and 1 µs more for 50 positions seen.
StepTimeModel MeasuredSteps() {
  StepTimeModel model;
  for (int32_t i = 0; i < 400; ++i) {
    const int32_t tokens = 1 + i * 7 % 500;
    const int64_t seen = int64_t{tokens} * (i * 31 % 1000);
    model.Observe(tokens, seen, FromSeconds((5 + 0.02 * tokens + 2e-5 * seen) / 1e3));
  }
  return model;
}

class ItlTargetTest : public testing::Test {
 protected:
  ItlTargetTest() : cache_(1024, 16, false), scheduler_(Options(), cache_) {}

  static Scheduler::Options Options() {
    Scheduler::Options options;
    options.engine.max_step_tokens = 2048;
    options.engine.itl_target = std::chrono::milliseconds(10);
    options.limits = {.context_length = 8192, .vocabulary = 1000, .max_samples = 256};
    return options;
  }

  // Plans a step, and runs it.
  StepPlan Step() {
    StepPlan plan = scheduler_.Plan(kNow);
    std::vector<SampledToken> sampled(plan.logit_rows);
    if (!plan.rows.empty()) scheduler_.Commit(sampled, kNow);
    return plan;
  }

  void StartDecoding() {
    scheduler_.Add(MakeRequest(1, 8, 0, 100), kNow);
    Step();
  }

  KvCache cache_;
  Scheduler scheduler_;
};

TEST_F(ItlTargetTest, PromptsAloneTakeTheWholeBudget) {
  scheduler_.set_step_time(MeasuredSteps());
  scheduler_.Add(MakeRequest(1, 4000, 0, 4), kNow);
  EXPECT_EQ(Step().tokens, 2048);
}

TEST_F(ItlTargetTest, BesideADecodeAPromptTakesWhatFitsTheTarget) {
  StartDecoding();
  const StepTimeModel model = MeasuredSteps();
  scheduler_.set_step_time(model);
  scheduler_.Add(MakeRequest(2, 4000, 0, 4), kNow);
  for (int step = 0; step < 5; ++step) {
    const StepPlan plan = Step();
    ASSERT_EQ(plan.rows.size(), 2u);
    const double predicted = model.PredictMs(plan.tokens, plan.token_context);
    EXPECT_LE(predicted, 10.01) << "step " << step;
    EXPECT_GE(predicted, 9.5) << "step " << step << ": there was room for more than "
                              << plan.tokens;
  }
}

TEST_F(ItlTargetTest, APromptAdvancesEvenWhenNothingFits) {
  StartDecoding();
  StepTimeModel slow;
  for (int i = 0; i < 100; ++i) {
    slow.Observe(1 + i % 50, 0, FromSeconds((20 + 0.5 * (1 + i % 50)) / 1e3));
  }
  scheduler_.set_step_time(slow);
  scheduler_.Add(MakeRequest(2, 400, 0, 4), kNow);
  scheduler_.Add(MakeRequest(3, 400, 0, 4), kNow);
  const StepPlan plan = Step();
  ASSERT_EQ(plan.rows.size(), 2u) << "one decode and one prompt";
  EXPECT_EQ(plan.rows[1].count, 16);
}

TEST_F(ItlTargetTest, WithoutMeasuredStepsTheBudgetAloneCounts) {
  StartDecoding();
  scheduler_.Add(MakeRequest(2, 4000, 0, 4), kNow);
  EXPECT_EQ(Step().tokens, 2048);
}

}  // namespace
}  // namespace baton
