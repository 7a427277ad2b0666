#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "common/engine/scheduler.h"
#include "tests/fakes/engine_harness.h"

// Steps of a pipeline: as many are under way as there are stages. The fake model counts a fault
// when two of them must not be under way together.
namespace baton {
namespace {

HarnessOptions Options() {
  HarnessOptions options;
  options.kv.blocks = 256;
  options.kv.block_tokens = 4;
  options.max_step_tokens = 128;
  options.max_sequences = 16;
  return options;
}

class PipelineTest : public ::testing::TestWithParam<int32_t> {
 protected:
  EngineHarness harness_{Options(), {.stages = GetParam()}};

  void ExpectTokens(const Request& request) {
    for (int32_t i = 0; i < request.samples; ++i) {
      EXPECT_EQ(harness_.log(request).Tokens(i), harness_.model().Expected(request, i));
    }
  }
  // Steps until `request` has `count` tokens.
  void RunUntilTokens(const Request& request, size_t count) {
    for (int i = 0; i < 1000 && harness_.log(request).Tokens(0).size() < count; ++i) {
      ASSERT_TRUE(harness_.Step());
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Stages, PipelineTest, ::testing::Values(2, 3, 4, 8));

TEST_P(PipelineTest, DecodesAreDividedIntoAsManyStepsAsStages) {
  std::vector<Request> requests;
  for (int i = 0; i < 16; ++i) {
    requests.push_back(MakeRequest(i, 5, i, 40));
    harness_.Submit(requests.back());
  }
  RunUntilTokens(requests.back(), 4);
  const int64_t rows = harness_.model().rows_run();
  const int64_t steps = harness_.engine().Stats().steps;
  for (int i = 0; i < 2 * GetParam(); ++i) harness_.Step();
  EXPECT_EQ(harness_.engine().Stats().steps, steps + int64_t{2} * GetParam());
  EXPECT_NEAR(static_cast<double>(harness_.model().rows_run() - rows), 32, 2);
  ASSERT_TRUE(harness_.RunUntilIdle());
  for (const Request& request : requests) ExpectTokens(request);
  const auto& issued = harness_.model().issued_as();
  EXPECT_EQ(issued.rbegin()->first, static_cast<size_t>(GetParam()));
  // Nearly every step is issued while the others are under way.
  EXPECT_GT(issued.rbegin()->second * 10, harness_.engine().Stats().steps * 8);
  EXPECT_EQ(harness_.engine().Stats().blocks_free, 256);
}

TEST_P(PipelineTest, ChunksOfAPromptFollowEachOther) {
  const Request request = MakeRequest(1, 400, 1, 3);
  harness_.Submit(request);
  harness_.Step();
  // One chunk has ended, and the others are behind it.
  EXPECT_EQ(harness_.engine().Stats().steps, 1);
  EXPECT_EQ(harness_.model().issued_as().rbegin()->first, static_cast<size_t>(GetParam()));
  ASSERT_TRUE(harness_.RunUntilIdle());
  ExpectTokens(request);
  EXPECT_EQ(harness_.model().rows_run(), 402);
  EXPECT_LE(harness_.model().max_step_rows(), std::max(64, 128 / GetParam()));
}

TEST_P(PipelineTest, AQuarterOfAStagesPartIsOneChunkAndALargerPromptIsDivided) {
  HarnessOptions options = Options();
  options.max_step_tokens = 1024;
  EngineHarness harness(options, {.stages = GetParam()});
  const int32_t parts = 4 * GetParam();
  const int32_t quarter = std::max(64, (1024 + parts - 1) / parts);
  const Request small = MakeRequest(1, quarter, 1, 1);
  harness.Submit(small);
  harness.Step();
  EXPECT_TRUE(harness.log(small).ended());
  const Request larger = MakeRequest(2, quarter + 1, 2, 1);
  harness.Submit(larger);
  harness.Step();
  EXPECT_FALSE(harness.log(larger).ended());
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.log(small).Tokens(0), harness.model().Expected(small, 0));
  EXPECT_EQ(harness.log(larger).Tokens(0), harness.model().Expected(larger, 0));
}

TEST_P(PipelineTest, SamplesOfOneRequestAreInDifferentSteps) {
  Request request = MakeRequest(1, 6, 1, 20);
  request.samples = 5;
  harness_.Submit(request);
  ASSERT_TRUE(harness_.RunUntilIdle());
  ExpectTokens(request);
  EXPECT_GT(harness_.model().copies(), 0);
  EXPECT_EQ(harness_.engine().Stats().blocks_free, 256);
}

// A step has the token before when it samples, so penalties need no wait.
TEST_P(PipelineTest, PenaltiesDoNotStopThePipeline) {
  std::vector<Request> requests;
  for (int i = 0; i < 8; ++i) {
    requests.push_back(MakeRequest(i, 6, i, 20));
    requests.back().sampling.presence_penalty = 0.5f;
    harness_.Submit(requests.back());
  }
  ASSERT_TRUE(harness_.RunUntilIdle());
  for (const Request& request : requests) ExpectTokens(request);
  EXPECT_EQ(harness_.model().issued_as().rbegin()->first, static_cast<size_t>(GetParam()));
}

TEST_P(PipelineTest, CancelledWhileItsStepsAreUnderWay) {
  const Request prompt = MakeRequest(1, 400, 1, 5);
  const Request other = MakeRequest(2, 6, 2, 60);
  harness_.Submit(other);
  harness_.Submit(prompt);
  harness_.Step();
  harness_.engine().Cancel(prompt.id, prompt.epoch);
  harness_.Step();
  EXPECT_EQ(harness_.log(prompt).failure->code(), StatusCode::kCancelled);
  RunUntilTokens(other, 5);
  harness_.engine().Cancel(other.id, other.epoch);
  ASSERT_TRUE(harness_.RunUntilIdle());
  EXPECT_EQ(harness_.log(other).failure->code(), StatusCode::kCancelled);
  EXPECT_EQ(harness_.engine().Stats().blocks_free, 256);
}

TEST_P(PipelineTest, AFailedStepTakesThoseUnderWayAlong) {
  std::vector<Request> requests;
  for (int i = 0; i < 8; ++i) {
    requests.push_back(MakeRequest(i, 6, i, 30));
    harness_.Submit(requests.back());
  }
  RunUntilTokens(requests.back(), 5);
  harness_.model().FailRuns(1, /*late=*/true);
  harness_.Step();
  for (const Request& request : requests) {
    EXPECT_EQ(harness_.log(request).failure->code(), StatusCode::kInternal);
  }
  const Request later = MakeRequest(20, 6, 1, 30);
  harness_.Submit(later);
  ASSERT_TRUE(harness_.RunUntilIdle());
  ExpectTokens(later);
  EXPECT_EQ(harness_.engine().Stats().blocks_free, 256);
}

TEST_P(PipelineTest, PreemptionWaitsForTheStepsUnderWay) {
  HarnessOptions options = Options();
  options.kv.blocks = 20;
  EngineHarness harness(options, {.stages = GetParam()});
  std::vector<Request> requests;
  for (int i = 0; i < 8; ++i) {
    requests.push_back(MakeRequest(i, 6, i, 40));
    harness.Submit(requests.back());
  }
  ASSERT_TRUE(harness.RunUntilIdle());
  for (const Request& request : requests) {
    EXPECT_EQ(harness.log(request).Tokens(0), harness.model().Expected(request, 0));
  }
  EXPECT_GT(harness.engine().Stats().preemptions, 0);
  EXPECT_EQ(harness.engine().Stats().blocks_free, 20);
}

// The listener learns the layers of a chunk when it knows the chunk before.
TEST_P(PipelineTest, ChunksOfAHandOffAreReportedInOrder) {
  for (const bool reports_late : {false, true}) {
    EngineHarness harness(Options(), {.stages = GetParam(), .reports_late = reports_late});
    Request request = MakeRequest(1, 400, 1, 5);
    request.kind = RequestKind::kPrefill;
    harness.Submit(request);
    ASSERT_TRUE(harness.RunUntilIdle());
    const RequestLog& log = harness.log(request);
    EXPECT_TRUE(log.all_announced);
    EXPECT_EQ(log.announced.size(), 100u);
    EXPECT_EQ(log.layers_told, harness.engine().Stats().steps) << "one call for each chunk";
    EXPECT_TRUE(log.ended());
    EXPECT_EQ(harness.engine().Stats().leases, 1);
    harness.engine().ReleaseKv(request.id, request.epoch);
    harness.Step();
    EXPECT_EQ(harness.engine().Stats().blocks_free, 256);
  }
}

// The chunks of a prompt of `tokens` tokens on two stages.
std::vector<int32_t> ChunksOf(int32_t tokens, int32_t max_step_tokens) {
  Scheduler::Options options;
  options.engine.max_step_tokens = max_step_tokens;
  options.limits = {.context_length = 1 << 14, .vocabulary = 1000, .max_samples = 1};
  options.stages = 2;
  KvCache cache(1000, 16, true);
  Scheduler scheduler(options, cache);
  const Time now = Time{} + std::chrono::hours(1);
  scheduler.Add(MakeRequest(1, tokens, 1, 2), now);
  std::vector<int32_t> chunks;
  for (int32_t done = 0; done < tokens; done += chunks.back()) {
    const StepPlan& plan = scheduler.Plan(now);
    if (plan.rows.size() != 1) break;
    chunks.push_back(plan.tokens);
    if (scheduler.can_plan()) continue;
    scheduler.Commit({}, now);
    scheduler.StoreBlocks();
  }
  scheduler.FailAll(MakeStatus(StatusCode::kCancelled, "the test is over"));
  return chunks;
}

// One stage idles during the first chunk and the other one during the last, which is half as large.
TEST(PipelineScheduleTest, APromptHasManyChunksUnlessTheyBecomeSmall) {
  using Chunks = std::vector<int32_t>;
  EXPECT_EQ(ChunksOf(2048, 2048), (Chunks{512, 512, 512, 256, 256}));
  EXPECT_EQ(ChunksOf(800, 2048), (Chunks{512, 256, 32}));
  EXPECT_EQ(ChunksOf(700, 2048), (Chunks{256, 256, 188}));
  EXPECT_EQ(ChunksOf(300, 256), (Chunks{64, 64, 64, 64, 44})) << "a larger chunk would be small";
}

// The scheduler of a decode worker with two stages. Requests whose KV has arrived: the last block
// of the prompt is not full, and the hand-off still holds it.
class CopyUnderWayTest : public ::testing::Test {
 protected:
  static Scheduler::Options Options() {
    Scheduler::Options options;
    options.engine.max_step_tokens = 16;
    options.limits = {.context_length = 64, .vocabulary = 1000, .max_samples = 2};
    options.stages = 2;
    return options;
  }
  void TearDown() override {
    scheduler_.FailAll(MakeStatus(StatusCode::kCancelled, "the test is over"));
    for (const RequestKey& key : handoffs_) scheduler_.ReleaseKv(key);
    EXPECT_EQ(cache_.available(), cache_.total());
  }

  // Every token of the prompt and the first token of each sample are known.
  RequestKey Activate(uint64_t id, int32_t samples) {
    Request request = MakeRequest(id, 6, id, 8);
    request.kind = RequestKind::kDecode;
    request.samples = samples;
    const RequestKey key = {request.id, request.epoch};
    handoffs_.push_back(key);
    scheduler_.Add(request, now_);
    EXPECT_TRUE(scheduler_.Plan(now_).rows.empty());
    std::vector<SampledToken> first(samples);
    for (SampledToken& token : first) token.token = 7;
    scheduler_.Activate(key, std::move(first), now_);
    return key;
  }
  const StepPlan& PlanOneRow() {
    const StepPlan& plan = scheduler_.Plan(now_);
    EXPECT_EQ(plan.rows.size(), 1u);
    return plan;
  }
  void Commit() {
    std::vector<SampledToken> sampled(1);
    sampled[0].token = 8;
    scheduler_.Commit(sampled, now_);
    scheduler_.StoreBlocks();
    EXPECT_TRUE(scheduler_.CheckIntegrity().ok()) << scheduler_.CheckIntegrity();
    EXPECT_EQ(scheduler_.LeakedBlocks(), 0);
  }

  const Time now_ = Time{} + std::chrono::hours(1);
  KvCache cache_{10, 4, true};
  Scheduler scheduler_{Options(), cache_};
  std::vector<RequestKey> handoffs_;
};

TEST_F(CopyUnderWayTest, TheBlockThatIsReadIsNotFreeWhenTheHandOffEnds) {
  const RequestKey key = Activate(1, 1);
  EXPECT_EQ(PlanOneRow().copies.size(), 1u);
  const int32_t available = cache_.available();
  scheduler_.ReleaseKv(key);
  EXPECT_EQ(cache_.available(), available);
  EXPECT_EQ(scheduler_.LeakedBlocks(), 0);
  Commit();
  EXPECT_EQ(cache_.available(), available + 1);
}

// The blocks of a sample that was stopped are kept until the older step has ended. The copy is part
// of the newer step.
TEST_F(CopyUnderWayTest, TheEndOfAnOlderStepDoesNotFreeTheBlock) {
  Activate(1, 1);
  PlanOneRow();
  const RequestKey key = Activate(2, 2);
  scheduler_.ReleaseKv(key);
  scheduler_.StopSample(key, 1);
  const StepPlan& plan = PlanOneRow();
  ASSERT_EQ(plan.rows[0].sequence->request->key(), key);
  ASSERT_EQ(plan.copies.size(), 1u);
  const BlockId read(static_cast<uint32_t>(plan.copies[0].from));
  Commit();
  Lease taken(cache_);
  EXPECT_TRUE(taken.GrowTo(cache_.available()));
  EXPECT_EQ(std::ranges::count(taken.blocks(0), read), 0);
  taken.Clear();
  Commit();
  EXPECT_TRUE(taken.GrowTo(cache_.available()));
  EXPECT_EQ(std::ranges::count(taken.blocks(0), read), 1);
}

// Steps run in order, so a copy of an older step has read the block before a newer step writes it.
TEST_F(CopyUnderWayTest, TheLastSampleWritesTheBlockInPlace) {
  const RequestKey key = Activate(1, 2);
  const StepPlan& first = PlanOneRow();
  EXPECT_EQ(first.copies.size(), 1u);
  scheduler_.ReleaseKv(key);
  const StepPlan& second = PlanOneRow();
  EXPECT_EQ(second.rows[0].sequence->request->key(), key);
  EXPECT_NE(second.rows[0].sequence, first.rows[0].sequence);
  EXPECT_TRUE(second.copies.empty());
  Commit();
  Commit();
}

TEST_F(CopyUnderWayTest, ARequestWhoseHandOffHasEndedCopiesNothing) {
  Activate(1, 1);
  PlanOneRow();
  scheduler_.ReleaseKv(Activate(2, 1));
  EXPECT_TRUE(PlanOneRow().copies.empty());
  Commit();
  Commit();
}

// Nobody would release a hand-off that the listener was never told.
TEST_P(PipelineTest, ACancelledHandOffKeepsTheChunksThatWereReported) {
  for (const int run : {0, 1, 2, 3, 4, 5}) {
    const int steps = run % 3;
    EngineHarness harness(Options(), {.stages = GetParam(), .reports_late = run >= 3});
    Request request = MakeRequest(10, 400, 1 + steps, 5);
    request.kind = RequestKind::kPrefill;
    const Request other = MakeRequest(20, 6, 2, 60);
    harness.Submit(other);
    while (harness.log(other).Tokens(0).size() < 3) ASSERT_TRUE(harness.Step());
    harness.Submit(request);
    for (int i = 0; i < steps; ++i) harness.Step();
    harness.engine().Cancel(request.id, request.epoch);
    harness.Step();
    const RequestLog& log = harness.log(request);
    ASSERT_TRUE(log.ended());
    const bool known = !log.announced.empty() || log.layers_told > 0;
    EXPECT_EQ(harness.engine().Stats().leases, known ? 1 : 0) << "run " << run;
    const size_t announced = log.announced.size();
    ASSERT_TRUE(harness.RunUntilIdle());
    EXPECT_EQ(log.announced.size(), announced) << "a chunk after the end";
    if (known) harness.engine().ReleaseKv(request.id, request.epoch);
    harness.Step();
    EXPECT_EQ(harness.engine().Stats().blocks_free, 256);
  }
}

TEST_P(PipelineTest, AReleasedHandOffReportsNoMoreChunks) {
  Request request = MakeRequest(1, 400, 1, 5);
  request.kind = RequestKind::kPrefill;
  harness_.Submit(request);
  harness_.Step();
  const size_t announced = harness_.log(request).announced.size();
  EXPECT_GT(announced, 0u);
  harness_.engine().ReleaseKv(request.id, request.epoch);
  ASSERT_TRUE(harness_.RunUntilIdle());
  EXPECT_EQ(harness_.log(request).announced.size(), announced);
  EXPECT_EQ(harness_.engine().Stats().blocks_free, 256);
}

}  // namespace
}  // namespace baton
