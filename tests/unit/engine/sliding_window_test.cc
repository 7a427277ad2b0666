#include <gtest/gtest.h>

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
  static FakeModel::Shape Shape() {
    return {.sliding_window = kWindow, .queues_steps = GetParam()};
  }
  // Runs until idle. Returns the most blocks in use after steps that computed no prompt.
  static int32_t MostBlocksWhileDecoding(EngineHarness& harness) {
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
    EXPECT_LE(MostBlocksWhileDecoding(harness), kWindowBlocks);
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

INSTANTIATE_TEST_SUITE_P(Queues, SlidingWindowTest, testing::Bool());

}  // namespace
}  // namespace baton
