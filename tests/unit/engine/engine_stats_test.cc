#include <gtest/gtest.h>

#include "common/engine/engine.h"
#include "tests/fakes/engine_harness.h"
#include "tests/fakes/forwarding_executor.h"

namespace baton {
namespace {

// Reads the engine's statistics while a step is issued.
class PeekingExecutor final : public ForwardingExecutor {
 public:
  using ForwardingExecutor::ForwardingExecutor;
  Status Issue(const StepInput& input,
               std::span<const SamplingRow> sampling,
               std::span<SampledToken> out,
               const LayerWatch& watch) override {
    if (engine != nullptr) seen = engine->Stats();
    return ForwardingExecutor::Issue(input, sampling, out, watch);
  }

  const Engine* engine = nullptr;
  EngineStats seen;
};

HarnessOptions SmallOptions() {
  HarnessOptions options;
  options.kv.blocks = 64;
  options.max_step_tokens = 64;
  options.kv.dtype = DType::kF32;
  return options;
}

TEST(EngineStatsTest, CountWhatWasSubmittedAtOnce) {
  EngineHarness harness(SmallOptions());
  harness.Submit(MakeRequest(1, 40, 7, 12));
  Request handed = MakeRequest(2, 30, 7, 12);
  handed.kind = RequestKind::kDecode;
  harness.Submit(handed);
  EXPECT_EQ(harness.engine().Stats().waiting, 2);
  EXPECT_EQ(harness.engine().Stats().queued_tokens, 40)
      << "the KV of the other request comes from a prefill worker";
}

TEST(EngineStatsTest, CountWhatAStepTakesInBeforeItEnds) {
  FakeExecutor model(SmallOptions().kv);
  PeekingExecutor peeking(model);
  EngineHarness harness(SmallOptions(), peeking);
  peeking.engine = &harness.engine();
  harness.Submit(MakeRequest(1, 40, 7, 12));
  harness.Submit(MakeRequest(2, 500, 8, 12));
  harness.engine().Step();
  EXPECT_EQ(peeking.seen.running + peeking.seen.waiting, 2);
  EXPECT_EQ(peeking.seen.queued_tokens, 540);
}

// The harness advances the clock only between steps, as if all time were work of the host.
TEST(EngineStatsTest, StepTimesHaveTheHostsWorkButNoIdleness) {
  EngineHarness harness(SmallOptions());
  harness.Submit(MakeRequest(1, 40, 7, 50));
  ASSERT_TRUE(harness.RunUntilIdle());
  const auto decode_ms = [&] {
    const EngineStats stats = harness.engine().Stats();
    return stats.step_ms_base + stats.step_ms_per_token + 60 * stats.step_ms_per_token_context;
  };
  EXPECT_NEAR(decode_ms(), 1, 0.1);
  for (int i = 0; i < 20; ++i) {
    harness.clock().Advance(std::chrono::hours(1));
    harness.Submit(MakeRequest(2 + i, 1, 7, 1));
    ASSERT_TRUE(harness.RunUntilIdle());
  }
  EXPECT_LT(decode_ms(), 1.1);
}

}  // namespace
}  // namespace baton
