#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/engine/batch.h"
#include "common/engine/scheduler.h"
#include "tests/fakes/engine_harness.h"

// How steps divide prompts into chunks, and what is recomputed.
namespace baton {
namespace {

using ::testing::ElementsAre;

constexpr Time kNow = Time{} + std::chrono::hours(1);

class ChunkTest : public testing::Test {
 protected:
  explicit ChunkTest(bool prefix_cache = false)
      : cache_(1024, 16, prefix_cache), scheduler_(Options(), cache_) {}

  static Scheduler::Options Options() {
    Scheduler::Options options;
    options.engine.max_step_tokens = 100;
    options.engine.full_step_tokens = 60;
    options.engine.repeat_output_singly = true;
    options.limits = {.context_length = 8192, .vocabulary = 1000, .max_samples = 256};
    return options;
  }

  // Plans and commits the next step. Returns the number of rows of each sequence in it.
  std::vector<int32_t> Step() {
    const StepPlan& plan = scheduler_.Plan(kNow);
    std::vector<int32_t> counts;
    for (const PlanRow& row : plan.rows) counts.push_back(row.count);
    batch_.Build(plan);
    sequences_.clear();
    for (const SequenceRows& rows : batch_.input().sequences) {
      sequences_.emplace_back(rows.context, rows.row_count);
    }
    std::vector<SampledToken> sampled(plan.logit_rows);
    if (!plan.rows.empty()) scheduler_.Commit(sampled, kNow);
    scheduler_.StoreBlocks();
    return counts;
  }

  // (context, rows) of the sequences that the device sees in the last step.
  const std::vector<std::pair<int32_t, int32_t>>& Sequences() const { return sequences_; }

  KvCache cache_;
  Scheduler scheduler_;

 private:
  Batch batch_;
  std::vector<std::pair<int32_t, int32_t>> sequences_;
};

class CachedChunkTest : public ChunkTest {
 protected:
  CachedChunkTest() : ChunkTest(true) {}
};

TEST_F(ChunkTest, AFullStepTakesInNoFurtherPrompt) {
  scheduler_.Add(MakeRequest(1, 70, 0, 1), kNow);
  scheduler_.Add(MakeRequest(2, 50, 1, 1), kNow);
  scheduler_.Add(MakeRequest(3, 40, 2, 1), kNow);
  scheduler_.Add(MakeRequest(4, 40, 3, 1), kNow);
  EXPECT_THAT(Step(), ElementsAre(70)) << "there was room for 30 tokens of the next";
  EXPECT_THAT(Step(), ElementsAre(50, 40)) << "two short ones fill a step";
  EXPECT_THAT(Step(), ElementsAre(40));
}

TEST_F(ChunkTest, AChunkNeverLeavesASingleTokenOfAPrompt) {
  scheduler_.Add(MakeRequest(1, 101, 0, 2), kNow);
  EXPECT_THAT(Step(), ElementsAre(99));
  EXPECT_THAT(Step(), ElementsAre(2));
  EXPECT_THAT(Step(), ElementsAre(1)) << "its second token";
}

TEST_F(ChunkTest, OutputIsComputedAgainTogetherButEachTokenAsASequence) {
  Request request = MakeRequest(1, 104, 0, 20);
  request.prompt_length = 101;
  scheduler_.Add(request, kNow);
  EXPECT_THAT(Step(), ElementsAre(99));
  EXPECT_THAT(Step(), ElementsAre(2)) << "no chunk has tokens of the prompt and of the output";
  EXPECT_THAT(Sequences(), ElementsAre(std::pair(99, 2)));
  EXPECT_THAT(Step(), ElementsAre(3));
  EXPECT_THAT(Sequences(), ElementsAre(std::pair(101, 1), std::pair(102, 1), std::pair(103, 1)));
  EXPECT_THAT(Step(), ElementsAre(1)) << "a new token";
}

TEST_F(CachedChunkTest, ACachedPrefixDoesNotLeaveASingleTokenEither) {
  Request request = MakeRequest(1, 65, 0, 1);
  scheduler_.Add(request, kNow);
  EXPECT_THAT(Step(), ElementsAre(65));
  request.epoch = Epoch(1);
  scheduler_.Add(request, kNow);
  EXPECT_THAT(Step(), ElementsAre(17)) << "three of four cached blocks must be used";
}

}  // namespace
}  // namespace baton
