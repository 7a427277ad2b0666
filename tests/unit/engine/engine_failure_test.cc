#include <gtest/gtest.h>

#include "common/engine/engine_loop.h"
#include "tests/fakes/engine_harness.h"

namespace baton {
namespace {

HarnessOptions Options() {
  HarnessOptions options;
  options.kv.blocks = 32;
  options.kv.block_tokens = 4;
  options.max_step_tokens = 16;
  options.max_sequences = 8;
  return options;
}

TEST(EngineFailureTest, FailedStepEndsOnlyTheRequestsInIt) {
  EngineHarness harness(Options());
  const Request hit = MakeRequest(1, 20, 1, 5);
  harness.Submit(hit);
  harness.Step();
  harness.model().FailRuns(1);
  harness.Step();
  ASSERT_TRUE(harness.log(hit).failure.has_value());
  EXPECT_EQ(harness.log(hit).failure->code(), StatusCode::kInternal);
  EXPECT_NE(Message(*harness.log(hit).failure).find("failed before the step"),
            std::string_view::npos);
  Request later = hit;
  later.epoch = Epoch(1);
  harness.Submit(later);
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.log(later).Tokens(0), harness.model().Expected(later, 0));
  EXPECT_TRUE(harness.engine().Stats().healthy);
  EXPECT_EQ(harness.engine().Stats().failed_steps, 1);
}

// A peer may be reading the blocks that were reported to it, even when the step fails.
TEST(EngineFailureTest, FailedStepLeavesToldBlocksToTheHandOff) {
  for (const bool told : {false, true}) {
    for (const int steps_before : {0, 1}) {
      EngineHarness harness(Options());
      Request request = MakeRequest(1, 32, 3, 5);
      request.kind = RequestKind::kPrefill;
      harness.Submit(request);
      for (int i = 0; i < steps_before; ++i) harness.Step();
      harness.model().FailRuns(1, /*late=*/told);
      harness.Step();
      ASSERT_TRUE(harness.log(request).failure.has_value());
      const int held = 4 * (steps_before + (told ? 1 : 0));
      EXPECT_EQ(harness.engine().Stats().blocks_free, 32 - held);
      EXPECT_EQ(harness.engine().Stats().leases, held > 0 ? 1 : 0);
      harness.engine().ReleaseKv(request.id, request.epoch);
      ASSERT_TRUE(harness.RunUntilIdle());
      EXPECT_EQ(harness.engine().Stats().blocks_free, 32);
    }
  }
}

// NaN logits come from the request or the model. The device works, and the other requests of the
// batch continue.
TEST(EngineFailureTest, WhoGetsNoTokenFailsAlone) {
  constexpr TokenId kPoison = 999;
  for (const bool queues_steps : {false, true}) {
    for (const size_t from_output : {0, 3}) {
      EngineHarness harness(Options(), {.queues_steps = queues_steps});
      harness.model().PoisonPrompts(kPoison, from_output);
      std::vector<Request> good;
      std::vector<Request> bad;
      for (int i = 0; i < 2 * Engine::kFailedStepsToGiveUp; ++i) {
        good.push_back(MakeRequest(2 * i, 6 + i, i, 12));
        bad.push_back(MakeRequest(2 * i + 1, 6 + i, i, 12));
        EditTokens(bad.back(), [](std::vector<TokenId>& tokens) { tokens.front() = kPoison; });
        bad.back().samples = 1 + i % 3;
        harness.Submit(good.back());
        harness.Submit(bad.back());
      }
      ASSERT_TRUE(harness.RunUntilIdle());
      for (const Request& request : bad) {
        const RequestLog& log = harness.log(request);
        ASSERT_TRUE(log.failure.has_value());
        EXPECT_EQ(log.failure->code(), StatusCode::kInternal);
        EXPECT_EQ(Message(*log.failure),
                  "the model gives no token: all 1000 logits are NaN or -inf");
        EXPECT_EQ(log.Tokens(0).size(), from_output);
      }
      for (const Request& request : good) {
        EXPECT_EQ(harness.log(request).Tokens(0), harness.model().Expected(request, 0));
      }
      const EngineStats stats = harness.engine().Stats();
      EXPECT_TRUE(stats.healthy);
      EXPECT_EQ(stats.failed_steps, 0);
      EXPECT_EQ(stats.blocks_free, 32);
      EXPECT_TRUE(harness.listener().gave_up().empty());
    }
  }
}

// The other samples of the request already have their tokens of this step.
TEST(EngineFailureTest, ASampleWithoutATokenEndsItsRequest) {
  for (const bool queues_steps : {false, true}) {
    for (int sample = 0; sample < 3; ++sample) {
      EngineHarness harness(Options(), {.queues_steps = queues_steps});
      Request request = MakeRequest(1, 6, 1, 12);
      EditTokens(request, [](std::vector<TokenId>& tokens) { tokens.front() = 999; });
      request.samples = 3;
      harness.model().PoisonPrompts(999, 2, SampleSeed(request.sampling.seed, sample));
      harness.Submit(request);
      ASSERT_TRUE(harness.RunUntilIdle());
      ASSERT_TRUE(harness.log(request).failure.has_value());
      EXPECT_EQ(harness.log(request).Tokens(sample).size(), 2u);
      EXPECT_EQ(harness.engine().Stats().blocks_free, 32);
      EXPECT_EQ(harness.engine().Stats().blocks_cached, 0);
    }
  }
}

TEST(EngineFailureTest, APromptWithoutATokenIsNotHandedOff) {
  EngineHarness harness(Options());
  harness.model().PoisonPrompts(999);
  Request request = MakeRequest(1, 20, 1, 5);
  EditTokens(request, [](std::vector<TokenId>& tokens) { tokens.front() = 999; });
  request.kind = RequestKind::kPrefill;
  harness.Submit(request);
  ASSERT_TRUE(harness.RunUntilIdle());
  ASSERT_TRUE(harness.log(request).failure.has_value());
  EXPECT_TRUE(harness.log(request).samples.empty());
  EXPECT_EQ(harness.engine().Stats().blocks_cached, 0) << "a request that used them would fail";
  harness.engine().ReleaseKv(request.id, request.epoch);
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.engine().Stats().blocks_free, 32);
}

TEST(EngineFailureTest, GivesUpAfterRepeatedFailure) {
  HarnessOptions options = Options();
  options.max_sequences = 1;
  EngineHarness harness(options);
  std::vector<Request> requests;
  for (int i = 0; i < 5; ++i) {
    requests.push_back(MakeRequest(i, 20, i, 5));
    harness.Submit(requests.back());
  }
  harness.model().FailRuns(Engine::kFailedStepsToGiveUp);
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_FALSE(harness.engine().Stats().healthy);
  EXPECT_EQ(harness.listener().gave_up().size(), 1u);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(harness.log(requests[i]).failure.has_value());
    EXPECT_EQ(harness.log(requests[i]).failure->code(),
              i < 3 ? StatusCode::kInternal : StatusCode::kUnavailable);
  }
  const Request late = MakeRequest(9, 3, 9, 3);
  harness.Submit(late);
  harness.Step();
  EXPECT_EQ(harness.log(late).failure->code(), StatusCode::kUnavailable);
}

TEST(EngineFailureTest, ALostDeviceIsGivenUpAtOnce) {
  EngineHarness harness(Options());
  const Request hit = MakeRequest(1, 20, 1, 5);
  Request awaiting = MakeRequest(2, 20, 2, 5);
  awaiting.kind = RequestKind::kDecode;
  harness.Submit(hit);
  harness.Submit(awaiting);
  harness.Step();
  EXPECT_TRUE(harness.listener().gave_up().empty());
  harness.model().LoseDevice();
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_FALSE(harness.engine().Stats().healthy);
  EXPECT_EQ(harness.engine().Stats().failed_steps, 1);
  // Both codes let the router try another worker.
  EXPECT_EQ(harness.log(hit).failure->code(), StatusCode::kInternal);
  EXPECT_EQ(harness.log(awaiting).failure->code(), StatusCode::kUnavailable);
  ASSERT_EQ(harness.listener().gave_up().size(), 1u);
  const Status& why = harness.listener().gave_up().front();
  EXPECT_EQ(why.code(), StatusCode::kUnavailable);
  EXPECT_NE(Message(why).find("lost its device: the step failed: the fake device is lost"),
            std::string_view::npos)
      << why;
  const Request late = MakeRequest(9, 3, 9, 3);
  harness.Submit(late);
  harness.Step();
  EXPECT_EQ(harness.log(late).failure->code(), StatusCode::kUnavailable);
  EXPECT_EQ(harness.listener().gave_up().size(), 1u);
  harness.engine().ReleaseKv(awaiting.id, awaiting.epoch);
}

TEST(EngineFailureTest, CancelledAtEveryPointLeavesNothing) {
  for (int point = 0; point < 14; ++point) {
    for (const RequestKind kind :
         {RequestKind::kServe, RequestKind::kPrefill, RequestKind::kDecode}) {
      EngineHarness harness(Options());
      Request request = MakeRequest(1, 40, 6, 6);
      request.kind = kind;
      request.samples = 3;
      harness.Submit(request);
      for (int i = 0; i < point; ++i) harness.Step();
      harness.engine().Cancel(request.id, request.epoch);
      ASSERT_TRUE(harness.RunUntilIdle());
      EXPECT_TRUE(harness.log(request).ended());
      harness.engine().ReleaseKv(request.id, request.epoch);
      ASSERT_TRUE(harness.RunUntilIdle());
      EXPECT_EQ(harness.engine().Stats().blocks_free, 32);
      EXPECT_EQ(harness.engine().Stats().leases, 0);
    }
  }
}

TEST(EngineFailureTest, SecondSubmitOfALivingRequestIsIgnored) {
  EngineHarness harness(Options());
  const Request request = MakeRequest(1, 10, 6, 6);
  harness.Submit(request);
  harness.Submit(request);
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.log(request).Tokens(0), harness.model().Expected(request, 0));
}

TEST(EngineFailureTest, ReleaseDuringThePromptEndsItsChunks) {
  EngineHarness harness(Options());
  Request request = MakeRequest(1, 60, 6, 6);
  request.kind = RequestKind::kPrefill;
  harness.Submit(request);
  harness.Step();
  EXPECT_EQ(harness.log(request).announced.size(), 4u);
  harness.engine().ReleaseKv(request.id, request.epoch);
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.log(request).announced.size(), 4u);
  EXPECT_EQ(harness.engine().Stats().blocks_free, 32);
}

TEST(EngineFailureTest, OptionsAreChecked) {
  HarnessOptions options = Options();
  FakeExecutor executor(options.kv);
  RecordingListener listener;
  const ManualClock clock;
  options.max_step_tokens = 5000;
  const auto engine = Engine::Create(options, executor, listener, clock);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(Message(engine.status()),
            "engine: max_step_tokens is 5000; it must be between 1 and 4096");
}

TEST(EngineFailureTest, SnapshotRepeatsTheCache) {
  EngineHarness harness(Options());
  harness.Submit(MakeRequest(1, 21, 6, 6));
  ASSERT_TRUE(harness.RunUntilIdle());
  const auto before = harness.listener().mirror();
  EXPECT_EQ(before.size(), 6u);
  const uint64_t sequence = harness.engine().Stats().cache_sequence;
  harness.engine().RequestCacheSnapshot();
  harness.Step();
  EXPECT_EQ(harness.listener().mirror(), before);
  EXPECT_EQ(harness.engine().Stats().cache_sequence, sequence + 2);
}

TEST(EngineFailureTest, AClearedCacheIsEmptyAndLeavesRunningSequencesAlone) {
  EngineHarness harness(Options());
  harness.Submit(MakeRequest(1, 21, 6, 6));
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_FALSE(harness.listener().mirror().empty());
  harness.Submit(MakeRequest(2, 21, 7, 6));
  harness.Step();
  harness.engine().RequestCacheSnapshot(/*clear=*/true);
  harness.Step();
  EXPECT_LT(harness.listener().mirror().size(), 3u) << "only what was stored since";
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_TRUE(harness.engine().CheckIntegrity().ok());
  const int64_t cached = harness.engine().Stats().cached_tokens;
  harness.Submit(MakeRequest(3, 21, 6, 6));
  ASSERT_TRUE(harness.RunUntilIdle());
  EXPECT_EQ(harness.engine().Stats().cached_tokens, cached)
      << "the first prompt is not cached any more";
  EXPECT_TRUE(harness.engine().CheckIntegrity().ok());
}

TEST(EngineLoopTest, ServesFromOtherThreadsAndDrains) {
  const HarnessOptions options = Options();
  FakeExecutor executor(options.kv);
  RecordingListener listener;
  const SteadyClock clock;
  auto engine = Engine::Create(options, executor, listener, clock);
  ASSERT_TRUE(engine.ok());
  {
    const EngineLoop loop(**engine, "engine");
    for (int i = 0; i < 50; ++i) (*engine)->Submit(MakeRequest(i, 1 + i % 20, i, 8));
    ASSERT_TRUE((*engine)->WaitUntilIdle(std::chrono::seconds(60)));
    EXPECT_EQ((*engine)->Stats().output_tokens, 50 * 8);
  }
  EXPECT_TRUE(listener.violations().empty());
  EXPECT_TRUE((*engine)->CheckIntegrity().ok());
}

}  // namespace
}  // namespace baton
