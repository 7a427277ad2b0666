#include <gtest/gtest.h>

#include "common/engine/scheduler.h"
#include "tests/fakes/engine_harness.h"

namespace baton {
namespace {

constexpr Time kNow = Time{} + std::chrono::hours(1);

// A step takes 5 ms, plus 0.02 ms per token, plus 1 µs per 50 positions to which its prompt tokens
// attend.
Duration StepTime(const StepWork& work) {
  const int32_t tokens = work.decodes + work.prompt_tokens;
  const auto seen = static_cast<double>(work.prompt_context);
  return FromSeconds((5 + 0.02 * tokens + 2e-5 * seen) / 1e3);
}

StepTimeModel MeasuredSteps() {
  StepTimeModel model;
  for (int32_t i = 0; i < 400; ++i) {
    const int32_t tokens = 2 + i * 7 % 500;
    StepWork work = {.decodes = 1 + i % 20, .decode_context = int64_t{i % 20} * 100};
    model.Observe(work, StepTime(work));
    work.prompt_tokens = tokens;
    work.prompt_context = int64_t{tokens} * (i * 31 % 1000);
    model.Observe(work, StepTime(work));
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

  // Plans and commits a step.
  StepPlan Step() {
    StepPlan plan = scheduler_.Plan(kNow);
    std::vector<SampledToken> sampled(plan.logit_rows);
    if (!plan.rows.empty()) scheduler_.Commit(sampled, kNow);
    scheduler_.StoreBlocks();
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
    const double predicted = model.PredictMs(plan.work);
    EXPECT_LE(predicted, 10.01) << "step " << step;
    EXPECT_GE(predicted, 9.5) << "step " << step << ": there was room for more than "
                              << plan.tokens;
  }
}

TEST_F(ItlTargetTest, APromptAdvancesEvenWhenNothingFits) {
  StartDecoding();
  StepTimeModel slow;
  for (int i = 0; i < 100; ++i) {
    const int32_t tokens = 2 + i % 50;
    slow.Observe({.prompt_tokens = tokens}, FromSeconds((20 + 0.5 * tokens) / 1e3));
  }
  scheduler_.set_step_time(slow);
  scheduler_.Add(MakeRequest(2, 400, 0, 4), kNow);
  scheduler_.Add(MakeRequest(3, 400, 0, 4), kNow);
  const StepPlan plan = Step();
  ASSERT_EQ(plan.rows.size(), 2u) << "one decode and one prompt";
  EXPECT_EQ(plan.rows[1].count, 16);
}

// As on a decode worker that computed no prompt before.
TEST_F(ItlTargetTest, AFirstPromptStartsSmallAndLearns) {
  StartDecoding();
  StepTimeModel model;
  for (int32_t i = 0; i < 1000; ++i) {
    const StepWork work = {.decodes = 1 + i % 3, .decode_context = i};
    model.Observe(work, StepTime(work));
  }
  scheduler_.set_step_time(model);
  scheduler_.Add(MakeRequest(2, 4000, 0, 4), kNow);
  std::vector<int32_t> chunks;
  while (chunks.size() < 6) {
    const StepPlan plan = Step();
    EXPECT_LE(StepTime(plan.work), std::chrono::milliseconds(11)) << plan.work.prompt_tokens;
    chunks.push_back(plan.work.prompt_tokens);
    model.Observe(plan.work, StepTime(plan.work));
    scheduler_.set_step_time(model);
  }
  EXPECT_EQ(chunks[0], 16);
  EXPECT_LE(chunks[1], 64) << "four times the largest measured chunk";
  EXPECT_GT(chunks[3], 150);
}

TEST_F(ItlTargetTest, AFirstPromptThatSeemsToCostNothingStillGrowsSlowly) {
  StartDecoding();
  StepTimeModel model;
  for (int i = 0; i < 40; ++i) {
    model.Observe({.decodes = 1, .decode_context = 8}, std::chrono::milliseconds(5));
    model.Observe({.decodes = 1, .decode_context = 8, .prompt_tokens = 16, .prompt_context = 136},
                  std::chrono::microseconds(5001));
  }
  scheduler_.set_step_time(model);
  scheduler_.Add(MakeRequest(2, 4000, 0, 4), kNow);
  EXPECT_LE(Step().work.prompt_tokens, 64);
}

TEST_F(ItlTargetTest, WithoutMeasuredStepsAPromptStartsSmall) {
  StartDecoding();
  scheduler_.Add(MakeRequest(2, 4000, 0, 4), kNow);
  EXPECT_EQ(Step().work.prompt_tokens, 16);
}

// A prompt computed by a prefill worker needs blocks for its KV, but no tokens of the step.
TEST_F(ItlTargetTest, AReservationDoesNotWaitForPromptsAheadOfIt) {
  StartDecoding();
  scheduler_.set_step_time(MeasuredSteps());
  scheduler_.Add(MakeRequest(2, 4000, 0, 4), kNow);
  scheduler_.Add(MakeRequest(3, 4000, 0, 4), kNow);
  Request handed = MakeRequest(4, 100, 0, 4);
  handed.kind = RequestKind::kDecode;
  scheduler_.Add(handed, kNow);
  (void)scheduler_.TakeOutcomes();
  const StepPlan plan = Step();
  ASSERT_EQ(plan.rows.size(), 2u) << "the second prompt waits for the first";
  EXPECT_EQ(scheduler_.TakeOutcomes().reservations.size(), 1u);
  EXPECT_EQ(scheduler_.Counts().waiting, 1);
}

TEST_F(ItlTargetTest, TheLastChunkTakesNoMoreThanTheTarget) {
  StartDecoding();
  const StepTimeModel model = MeasuredSteps();
  scheduler_.set_step_time(model);
  scheduler_.Add(MakeRequest(2, 500, 0, 4), kNow);
  scheduler_.Add(MakeRequest(3, 500, 1, 4), kNow);
  int32_t sampled = 0;
  for (int step = 0; step < 12 && sampled < 2; ++step) {
    const StepPlan plan = Step();
    EXPECT_LE(model.PredictMs(plan.work), 10.01) << "step " << step;
    for (const PlanRow& row : plan.rows) sampled += row.count > 1 && row.samples > 0 ? 1 : 0;
  }
  EXPECT_EQ(sampled, 2);
}

}  // namespace
}  // namespace baton
