#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/engine/kv_room.h"
#include "common/engine/scheduler.h"
#include "tests/fakes/engine_harness.h"
#include "tests/fakes/fake_grammar.h"
#include "tests/unit/engine/handoff_driver.h"

// Models whose layers have states (KvCacheGroup::state). FakeExecutor counts each state that is
// read before it is written, after another token, or twice.
namespace baton {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kBlockTokens = 4;
constexpr int32_t kStateBlocks = 3;

// Three blocks of 64 bytes for a state of 40 elements beside a layer that reads all tokens.
const FakeExecutor::Shape kHybrid = {.windows = {0, 0}, .state_layers = {0}, .state_dim = 40};

HarnessOptions Options(int32_t blocks, int32_t checkpoint_tokens = 0) {
  HarnessOptions options;
  options.kv.block_tokens = kBlockTokens;
  options.kv.blocks = blocks;
  options.state_checkpoint_tokens = checkpoint_tokens;
  return options;
}

class StateTest : public ::testing::Test {
 protected:
  // Runs `request` and returns how many of its tokens were cached.
  static int32_t Serve(EngineHarness& harness, const Request& request) {
    harness.Submit(request);
    EXPECT_TRUE(harness.RunUntilIdle());
    const RequestLog& log = harness.log(request);
    EXPECT_TRUE(log.times.has_value()) << log.failure.value_or(OkStatus());
    for (int32_t sample = 0; sample < request.samples; ++sample) {
      EXPECT_EQ(log.Tokens(sample), harness.model().Expected(request, sample)) << sample;
    }
    return log.times.has_value() ? log.times->cached_tokens : -1;
  }

  // A prompt of `length` tokens. The first `shared` ones are those of all such prompts.
  static Request Prompt(uint64_t id, int32_t length, int32_t shared, int32_t max_tokens = 1) {
    Request request = MakeRequest(id, length, 2, max_tokens);
    EditTokens(request, [&](std::vector<TokenId>& tokens) {
      for (size_t i = static_cast<size_t>(shared); i < tokens.size(); ++i) {
        tokens[i] = static_cast<TokenId>((id * 131 + i * 17) % 1000);
      }
    });
    return request;
  }
};

// The only checkpoint of a short prompt is at its last border of blocks.
TEST_F(StateTest, APrefixIsReusedUpToACheckpoint) {
  EngineHarness harness(Options(64, 1 << 20), kHybrid);
  EXPECT_EQ(Serve(harness, Prompt(1, 22, 22)), 0);
  EXPECT_EQ(Serve(harness, Prompt(2, 30, 22)), 20);
  EXPECT_EQ(Serve(harness, Prompt(3, 22, 22)), 20);
  // The KV of its first 12 tokens is cached, but no state after any of them.
  EXPECT_EQ(Serve(harness, Prompt(4, 22, 15)), 0);
}

TEST_F(StateTest, CheckpointsFollowTheSetting) {
  EngineHarness harness(Options(64, 8), kHybrid);
  EXPECT_EQ(Serve(harness, Prompt(1, 30, 30)), 0);
  EXPECT_EQ(Serve(harness, Prompt(2, 30, 15)), 8);
  EXPECT_EQ(Serve(harness, Prompt(3, 30, 26)), 24);
  EXPECT_EQ(Serve(harness, Prompt(4, 30, 30)), 28);
}

// By default as much memory for checkpoints as for KV: a state of three blocks after three blocks.
TEST_F(StateTest, CheckpointsFollowTheSizeOfAState) {
  EngineHarness harness(Options(64), kHybrid);
  EXPECT_EQ(Serve(harness, Prompt(1, 30, 30)), 0);
  EXPECT_EQ(Serve(harness, Prompt(2, 30, 23)), 12);
}

// A state of the size of the KV of 4,800 tokens.
TEST(StateCheckpointTest, ByDefaultLargeStatesHaveOneEvery2048Tokens) {
  KvCache cache(4000, 16, true, {0, kStateWindow}, 300);
  Scheduler::Options options;
  options.engine.max_step_tokens = 1 << 20;
  options.limits = {.context_length = 1 << 20, .vocabulary = 1000, .max_samples = 1};
  Scheduler scheduler(options, cache);
  const Time now = Time{} + std::chrono::hours(1);
  scheduler.Add(MakeRequest(1, 5000, 1, 4), now);
  const StepPlan& plan = scheduler.Plan(now);
  ASSERT_EQ(plan.rows.size(), 1u);
  EXPECT_EQ(plan.rows[0].count, 2048);
}

TEST_F(StateTest, OutputHasCheckpointsToo) {
  EngineHarness harness(Options(64, 8), kHybrid);
  const Request first = Prompt(1, 6, 6, 30);
  EXPECT_EQ(Serve(harness, first), 0);
  Request next = Prompt(2, 1, 1);
  std::vector<TokenId> tokens = first.tokens.ToVector();
  const std::vector<TokenId> output = harness.log(first).Tokens(0);
  tokens.insert(tokens.end(), output.begin(), output.end());
  next.tokens = tokens;
  next.prompt_length = 36;
  EXPECT_EQ(Serve(harness, next), 32);
}

// Each sample changes a state of its own, and their first rows read the same one.
TEST_F(StateTest, SamplesHaveStatesOfTheirOwn) {
  EngineHarness harness(Options(64), kHybrid);
  Request request = MakeRequest(1, 10, 3, 12);
  request.samples = 3;
  EXPECT_EQ(Serve(harness, request), 0);
  EXPECT_EQ(harness.engine().Stats().blocks_free, 64);
}

// A row whose mask is late is computed again; the state has its token already.
TEST_F(StateTest, ARowThatIsComputedAgainLeavesTheState) {
  FakeGrammarCompiler compiler;
  HarnessOptions options = Options(64, 4);
  options.grammars = &compiler;
  EngineHarness harness(options, kHybrid);
  Request request = MakeRequest(1, 10, 2, 20);
  request.grammar = "9";
  request.stop_tokens = {1};
  harness.Submit(request);
  for (int step = 0; step < 12; ++step) {
    harness.Step();
    harness.model().DelayMasks(step % 3);
  }
  ASSERT_TRUE(harness.RunUntilIdle());
  const FakeGrammar grammar(9);
  ASSERT_FALSE(harness.log(request).failure.has_value()) << *harness.log(request).failure;
  EXPECT_EQ(harness.log(request).Tokens(0), harness.model().Expected(request, 0, &grammar));
}

// A stop token ends the answer at a border of blocks, and the next row, which a queue computes in
// vain, changes the state.
TEST_F(StateTest, AStateThatARowInVainChangedIsNotCached) {
  FakeExecutor::Shape shape = kHybrid;
  shape.queues_steps = true;
  EngineHarness harness(Options(64, 4), shape);
  Request first = Prompt(1, 6, 6, 30);
  const std::vector<TokenId> output = harness.model().Expected(first, 0);
  first.stop_tokens = {output[10]};
  EXPECT_EQ(Serve(harness, first), 0);
  EXPECT_GT(harness.model().steps_behind(), 0);
  Request next = first;
  next.id = RequestId(2);
  next.stop_tokens = {};
  EditTokens(next, [&](std::vector<TokenId>& tokens) {
    tokens.insert(tokens.end(), output.begin(), output.begin() + 12);
  });
  next.prompt_length = 18;
  EXPECT_LT(Serve(harness, next), 16);
}

// Where no blocks are to spare, a sequence keeps its one state and no checkpoints.
TEST_F(StateTest, ASequenceMayFillTheArena) {
  EngineHarness harness(Options(kStateBlocks + 5, 4), kHybrid);
  EXPECT_EQ(Serve(harness, Prompt(1, 14, 14, 6)), 0);
  EXPECT_EQ(harness.engine().Stats().preemptions, 0);
}

// With the cached state that it reads and the one that it writes, the prompt would never fit.
TEST_F(StateTest, APromptThatDoesNotFitBesideItsCheckpointIsComputed) {
  EngineHarness harness(Options(kStateBlocks + 7, 8), kHybrid);
  EXPECT_EQ(Serve(harness, Prompt(1, 9, 9)), 0);
  EXPECT_EQ(Serve(harness, Prompt(2, 12, 9)), 8);
  EXPECT_EQ(Serve(harness, Prompt(3, 27, 9)), 0);
}

TEST_F(StateTest, AnArenaThatHoldsNoStateIsRefused) {
  HarnessOptions options = Options(kStateBlocks);
  FakeExecutor executor(options.kv, kHybrid);
  RecordingListener listener;
  ManualClock clock;
  const auto engine = Engine::Create(options, executor, listener, clock, nullptr);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(engine.status()),
              HasSubstr("has 3 blocks; the state of one sequence takes 3"));
}

// Preempted sequences are computed again, from a checkpoint or from the beginning.
TEST_F(StateTest, SequencesGiveWayToEachOther) {
  EngineHarness harness(Options(24, 8), kHybrid);
  std::vector<Request> requests;
  for (uint64_t id = 1; id <= 8; ++id) {
    requests.push_back(MakeRequest(id, 12, id % 3, 30));
    harness.Submit(requests.back());
  }
  ASSERT_TRUE(harness.RunUntilIdle());
  for (const Request& request : requests) {
    EXPECT_EQ(harness.log(request).Tokens(0), harness.model().Expected(request, 0));
  }
  EXPECT_GT(harness.engine().Stats().preemptions, 0);
}

class StateHandoffTest : public ::testing::Test {
 protected:
  EngineHarness prefill_{Options(64, 8), kHybrid};
  EngineHarness decode_{Options(64, 8), kHybrid};
  HandoffDriver driver_{prefill_, decode_};

  void HandOff(const Request& request) {
    driver_.Start(request);
    ASSERT_TRUE(driver_.RunUntilIdle());
    EXPECT_EQ(driver_.Tokens(request, 0), prefill_.model().Expected(request, 0));
    EXPECT_EQ(prefill_.log(request).state.size(), static_cast<size_t>(kStateBlocks));
    EXPECT_EQ(decode_.log(request).reservation->state.size(), static_cast<size_t>(kStateBlocks));
  }
};

TEST_F(StateHandoffTest, TheStateMovesWithTheKv) {
  HandOff(MakeRequest(1, 22, 2, 12));
  // The KV of the prompt is cached on the decode side.
  HandOff(MakeRequest(2, 22, 2, 12));
  EXPECT_EQ(decode_.log(MakeRequest(2, 1, 1, 1)).reservation->cached_blocks, 5);
}

// The decode worker has a checkpoint at the end of the prompt.
TEST_F(StateHandoffTest, ACachedStateIsNotReceived) {
  decode_.Submit(MakeRequest(1, 28, 2, 1));
  ASSERT_TRUE(decode_.RunUntilIdle());
  HandOff(MakeRequest(2, 24, 2, 12));
  const int64_t free = decode_.engine().Stats().blocks_free;
  EXPECT_EQ(free, 64);
  EXPECT_EQ(decode_.log(MakeRequest(2, 1, 1, 1)).reservation->cached_blocks, 6);
}

}  // namespace
}  // namespace baton
