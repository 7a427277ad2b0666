#include "common/engine/watched_runner.h"

#include <atomic>
#include <cstdint>
#include <thread>

#include <gtest/gtest.h>

#include "tests/fakes/engine_harness.h"

namespace baton {
namespace {

HarnessOptions Options() {
  HarnessOptions options;
  options.kv.blocks = 64;
  options.kv.block_tokens = 4;
  return options;
}

TEST(WatchedRunnerTest, AStepThatDoesNotEndIsToldOnce) {
  for (const bool queues_steps : {false, true}) {
    FakeModel model({.queues_steps = queues_steps});
    std::atomic<int> overdue = 0;
    model.AllowRuns(5);
    WatchedRunner watched(model, std::chrono::milliseconds(40), [&] {
      ++overdue;
      model.AllowRuns(INT64_MAX);  // lets the step end, so that the test ends
    });
    EngineHarness harness(Options(), watched);
    const Request request = MakeRequest(1, 6, 1, 20);
    harness.Submit(request);
    ASSERT_TRUE(harness.RunUntilIdle());
    EXPECT_EQ(harness.log(request).Tokens(0), model.Expected(request, 0));
    EXPECT_EQ(overdue, 1);
  }
}

TEST(WatchedRunnerTest, StepsThatEndAndIdlingAreNot) {
  constexpr auto kLimit = std::chrono::milliseconds(500);
  FakeModel model;
  std::atomic<int> overdue = 0;
  WatchedRunner watched(model, kLimit, [&] { ++overdue; });
  EngineHarness harness(Options(), watched);
  for (int i = 0; i < 2; ++i) {
    harness.Submit(MakeRequest(i, 6, i, 20));
    ASSERT_TRUE(harness.RunUntilIdle());
    std::this_thread::sleep_for(kLimit * 3 / 2);
  }
  EXPECT_EQ(overdue, 0);
}

}  // namespace
}  // namespace baton
