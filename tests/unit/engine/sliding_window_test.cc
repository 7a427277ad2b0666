#include <gtest/gtest.h>

#include "common/engine/scheduler.h"
#include "tests/fakes/engine_harness.h"
#include "tests/unit/engine/handoff_driver.h"

namespace baton {
namespace {

constexpr int32_t kBlockTokens = 4;
constexpr int32_t kWindow = 10;
// A window that does not begin at a block's beginning, and the block of the next token.
constexpr int32_t kWindowBlocks = kWindow / kBlockTokens + 2;

HarnessOptions Options() {
  HarnessOptions options;
  options.kv.blocks = 32;
  options.kv.block_tokens = kBlockTokens;
  options.max_step_tokens = 16;
  options.max_sequences = 8;
  return options;
}

class SlidingWindowTest : public testing::TestWithParam<bool> {
 protected:
  static FakeExecutor::Shape Shape() { return {.windows = {kWindow}, .queues_steps = GetParam()}; }
  // Runs until idle. Returns the most blocks in use after steps that computed no prompt.
  static int32_t MaxBlocksWhileDecoding(EngineHarness& harness) {
    int32_t most = 0;
    while (harness.Step()) {
      const EngineStats stats = harness.engine().Stats();
      if (stats.queued_tokens == 0) {
        most = std::max(most, stats.blocks_total - stats.blocks_free);
      }
    }
    return most;
  }
};

TEST_P(SlidingWindowTest, ASequenceHoldsOnlyTheBlocksOfItsWindow) {
  for (const bool prefix_cache : {false, true}) {
    HarnessOptions options = Options();
    options.prefix_cache = prefix_cache;
    EngineHarness harness(options, Shape());
    const Request request = MakeRequest(1, 50, 7, 60);
    harness.Submit(request);
    EXPECT_LE(MaxBlocksWhileDecoding(harness), kWindowBlocks);
    EXPECT_EQ(harness.log(request).Tokens(0), harness.model().Expected(request, 0));
    EXPECT_EQ(harness.engine().Stats().blocks_free, 32);
    EXPECT_EQ(harness.model().faults(), 0);
  }
}

// The layers with a window hold a window, the others hold all tokens.
TEST_P(SlidingWindowTest, EachGroupOfLayersHoldsWhatItReads) {
  for (const bool prefix_cache : {false, true}) {
    HarnessOptions options = Options();
    options.kv.blocks = 64;
    options.prefix_cache = prefix_cache;
    FakeExecutor::Shape shape = Shape();
    shape.windows = {kWindow, 0};
    EngineHarness harness(options, shape);
    const Request request = MakeRequest(1, 50, 7, 60);
    harness.Submit(request);
    EXPECT_LE(MaxBlocksWhileDecoding(harness), 110 / kBlockTokens + 1 + kWindowBlocks);
    EXPECT_EQ(harness.log(request).Tokens(0), harness.model().Expected(request, 0));
    EXPECT_EQ(harness.engine().Stats().blocks_free, 64);
    EXPECT_EQ(harness.model().faults(), 0);
  }
}

// Layers that attend within chunks hold the chunk of the next token.
TEST_P(SlidingWindowTest, ASequenceHoldsOnlyTheBlocksOfItsChunk) {
  for (const bool prefix_cache : {false, true}) {
    HarnessOptions options = Options();
    options.prefix_cache = prefix_cache;
    FakeExecutor::Shape shape = Shape();
    shape.windows = {KvWindow::OfChunks(kWindow)};
    EngineHarness harness(options, shape);
    const Request request = MakeRequest(1, 50, 7, 60);
    harness.Submit(request);
    EXPECT_LE(MaxBlocksWhileDecoding(harness), kWindowBlocks);
    EXPECT_EQ(harness.log(request).Tokens(0), harness.model().Expected(request, 0));
    EXPECT_EQ(harness.engine().Stats().blocks_free, 32);
    EXPECT_EQ(harness.model().faults(), 0);
  }
}

// Eight sequences of up to 64 tokens fit into 32 blocks, which hold 128 tokens.
TEST_P(SlidingWindowTest, LongAnswersNeedNoPreemption) {
  EngineHarness harness(Options(), Shape());
  std::vector<Request> requests;
  for (int i = 0; i < 8; ++i) requests.push_back(MakeRequest(i, 4, 100 + i, 60));
  for (const Request& request : requests) harness.Submit(request);
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.engine().Stats().preemptions, 0);
  for (const Request& request : requests) {
    EXPECT_EQ(harness.log(request).Tokens(0), harness.model().Expected(request, 0));
  }
}

TEST_P(SlidingWindowTest, SamplesShareTheBlocksOfTheirPrompt) {
  EngineHarness harness(Options(), Shape());
  Request request = MakeRequest(1, 23, 7, 30);
  request.samples = 4;
  request.sampling.temperature = 1;
  harness.Submit(request);
  ASSERT_TRUE(harness.RunUntilIdle());
  for (int32_t i = 0; i < request.samples; ++i) {
    EXPECT_EQ(harness.log(request).Tokens(i), harness.model().Expected(request, i)) << i;
  }
  EXPECT_EQ(harness.engine().Stats().blocks_free, 32);
}

TEST_P(SlidingWindowTest, AReceivedPromptShrinksToTheWindow) {
  EngineHarness prefill(Options(), Shape());
  EngineHarness decode(Options(), Shape());
  HandoffDriver driver(prefill, decode);
  const Request request = MakeRequest(1, 90, 7, 30);
  driver.Start(request);
  int32_t last = 0;
  for (bool worked = true; worked;) {
    worked = prefill.Step("prefill");
    worked |= decode.Step("decode");
    worked |= driver.Pump();
    const EngineStats stats = decode.engine().Stats();
    if (stats.running > 0) last = stats.blocks_total - stats.blocks_free;
  }
  EXPECT_LE(last, kWindowBlocks);
  EXPECT_EQ(driver.Tokens(request, 0), decode.model().Expected(request, 0));
}

// Two hand-offs keep their leases, although the window of both sequences has left these blocks
// behind. The second sequence is preempted when it is longer than the arena, and must not need more
// blocks than the arena has to be computed again.
TEST(SlidingWindowScheduleTest, APreemptedHandOffThatOutgrewTheArenaIsServed) {
  for (const auto admission :
       {AdmissionPolicy::kGuaranteedNoEvict, AdmissionPolicy::kMaxUtilization}) {
    Scheduler::Options options;
    options.engine.admission = admission;
    options.engine.max_step_tokens = 8;
    options.limits = {.context_length = 200, .vocabulary = 1000, .max_samples = 1};
    KvCache cache(11, kBlockTokens, false, {kWindow});
    Scheduler scheduler(options, cache);
    const Time now = Time{} + std::chrono::hours(1);
    const SampledToken token = {.token = 5, .logprob = 0, .top = {}};
    std::vector<RequestKey> keys;
    for (uint64_t id : {1, 2}) {
      Request request = MakeRequest(id, 8, id, 100);
      request.kind = RequestKind::kDecode;
      keys.emplace_back(request.id, request.epoch);
      scheduler.Add(request, now);
    }
    size_t finished = 0;
    const auto run = [&](int steps) {
      for (int i = 0; i < steps; ++i) {
        const StepPlan& plan = scheduler.Plan(now);
        if (!plan.rows.empty()) {
          std::vector<SampledToken> sampled(plan.logit_rows, token);
          scheduler.Commit(sampled, now);
          scheduler.StoreBlocks();
        }
        ASSERT_TRUE(scheduler.CheckIntegrity().ok()) << scheduler.CheckIntegrity();
        finished += scheduler.TakeOutcomes().finished.size();
      }
    };
    run(1);
    scheduler.Activate(keys[1], {token}, now);
    run(60);
    scheduler.Activate(keys[0], {token}, now);
    run(400);
    EXPECT_GT(scheduler.Counts().preemptions, 0);
    EXPECT_EQ(finished, 2u);
    for (const RequestKey& key : keys) scheduler.ReleaseKv(key);
    EXPECT_EQ(cache.available(), cache.total());
  }
}

constexpr int32_t kWideWindow = 32;

// An arena of few blocks, and a context that is far longer.
class SmallArenaTest : public testing::TestWithParam<std::tuple<bool, bool, AdmissionPolicy>> {
 protected:
  static FakeExecutor::Shape Shape() {
    return {
        .context_length = 4096, .windows = {kWideWindow}, .queues_steps = std::get<0>(GetParam())};
  }
  static HarnessOptions Options(int32_t blocks) {
    HarnessOptions options;
    options.kv.blocks = blocks;
    options.kv.block_tokens = kBlockTokens;
    options.max_step_tokens = 16;
    options.max_sequences = 8;
    options.prefix_cache = std::get<1>(GetParam());
    options.admission = std::get<2>(GetParam());
    return options;
  }
  static bool never_evicts() {
    return std::get<2>(GetParam()) == AdmissionPolicy::kGuaranteedNoEvict;
  }

  // Runs the requests until idle, and checks their answers and that all blocks are free again.
  static void ExpectAnswers(EngineHarness& harness, const std::vector<Request>& requests) {
    for (const Request& request : requests) harness.Submit(request);
    ASSERT_TRUE(harness.RunUntilIdle());
    for (const Request& request : requests) {
      EXPECT_FALSE(harness.log(request).failure.has_value()) << *harness.log(request).failure;
      for (int32_t i = 0; i < request.samples; ++i) {
        EXPECT_EQ(std::ssize(harness.log(request).Tokens(i)), request.max_tokens);
        EXPECT_EQ(harness.log(request).Tokens(i), harness.model().Expected(request, i));
      }
    }
    EXPECT_EQ(harness.engine().Stats().blocks_free, harness.engine().Stats().blocks_total);
    EXPECT_EQ(harness.engine().Stats().blocks_leaked, 0);
    EXPECT_EQ(harness.model().faults(), 0);
  }
};

// The arena holds 56 tokens.
TEST_P(SmallArenaTest, AnAnswerMayBeFarLongerThanTheArena) {
  EngineHarness harness(Options(14), Shape());
  ExpectAnswers(harness, {MakeRequest(1, 20, 7, 600)});
  EXPECT_EQ(harness.engine().Stats().preemptions, 0);
}

TEST_P(SmallArenaTest, APromptMayBeLongerThanTheArena) {
  EngineHarness harness(Options(14), Shape());
  ExpectAnswers(harness, {MakeRequest(1, 300, 7, 100), MakeRequest(2, 301, 8, 100)});
}

// A preempted sequence is recomputed chunk by chunk, because it is longer than the arena.
TEST_P(SmallArenaTest, ALongSequenceIsRecomputedAfterAPreemption) {
  HarnessOptions options = Options(14);
  options.policy = SchedulingPolicy::kPriority;
  EngineHarness harness(options, Shape());
  const Request low = MakeRequest(1, 10, 7, 300);
  harness.Submit(low);
  while (harness.log(low).Tokens(0).size() < 150) ASSERT_TRUE(harness.Step());
  Request high = MakeRequest(2, 10, 8, 300);
  high.priority = 5;
  harness.Submit(high);
  ASSERT_TRUE(harness.RunUntilIdle());
  for (const Request& request : {low, high}) {
    EXPECT_EQ(harness.log(request).Tokens(0), harness.model().Expected(request, 0));
  }
  EXPECT_EQ(harness.engine().Stats().preemptions > 0, !never_evicts());
}

TEST_P(SmallArenaTest, LongSequencesPreemptEachOther) {
  EngineHarness harness(Options(20), Shape());
  std::vector<Request> requests;
  for (int i = 0; i < 4; ++i) requests.push_back(MakeRequest(1 + i, 10, 100 + i, 300));
  ExpectAnswers(harness, requests);
  EXPECT_EQ(harness.engine().Stats().preemptions > 0, !never_evicts());
}

TEST_P(SmallArenaTest, SamplesAreLongerThanTheArena) {
  EngineHarness harness(Options(44), Shape());
  Request request = MakeRequest(1, 90, 7, 300);
  request.samples = 3;
  request.sampling.temperature = 1;
  ExpectAnswers(harness, {request});
}

// The blocks of a window and of a chunk are reserved, not those of the full length.
TEST_P(SmallArenaTest, SeveralLongSequencesRunTogether) {
  constexpr int kTogether = 4;
  EngineHarness harness(Options(14 * kTogether), Shape());
  std::vector<Request> requests;
  for (int i = 0; i < kTogether; ++i) {
    requests.push_back(MakeRequest(1 + i, 40, 100 + i, 300));
    harness.Submit(requests.back());
  }
  int32_t most = 0;
  while (harness.Step()) most = std::max(most, harness.engine().Stats().running);
  EXPECT_EQ(most, kTogether);
  EXPECT_EQ(harness.engine().Stats().preemptions, 0);
  for (const Request& request : requests) {
    EXPECT_EQ(harness.log(request).Tokens(0), harness.model().Expected(request, 0));
  }
}

// A window and three blocks of a chunk do not fit: an answer ends when it fills the arena.
TEST_P(SmallArenaTest, ATinyArenaEndsAnAnswer) {
  EngineHarness harness(Options(12), Shape());
  const Request request = MakeRequest(1, 20, 7, 600);
  harness.Submit(request);
  ASSERT_TRUE(harness.RunUntilIdle());
  if (never_evicts()) {
    EXPECT_TRUE(harness.log(request).failure.has_value());
  } else {
    EXPECT_EQ(harness.log(request).Tokens(0).size(), 12u * kBlockTokens + 1 - 20);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds,
                         SmallArenaTest,
                         testing::Combine(testing::Bool(),
                                          testing::Bool(),
                                          testing::Values(AdmissionPolicy::kMaxUtilization,
                                                          AdmissionPolicy::kGuaranteedNoEvict)));
INSTANTIATE_TEST_SUITE_P(Queues, SlidingWindowTest, testing::Bool());

}  // namespace
}  // namespace baton
