#include "prefill_worker/handoff_patience.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

using std::chrono::seconds;

TEST(HandoffPatienceTest, IsTwiceTheTimeToComputeThePrompt) {
  EngineLoad load;
  load.step_ms_per_prompt_token = 2;
  load.step_ms_per_prompt_token_context = 0.001;
  // 4,000 tokens of 2 ms, each with a context of 2,000 tokens on average.
  EXPECT_EQ(HandoffPatience(load, 4000, seconds(1)), 2 * seconds(16));
}

TEST(HandoffPatienceTest, IsThatOfThisPromptUntilTheSpeedIsKnown) {
  EXPECT_EQ(HandoffPatience({}, 4000, seconds(7)), seconds(14));
}

TEST(HandoffPatienceTest, IsAtLeastFourSeconds) {
  EXPECT_EQ(HandoffPatience({}, 4000, Duration{}), seconds(4));
  EngineLoad fast;
  fast.step_ms_per_prompt_token = 0.1;
  EXPECT_EQ(HandoffPatience(fast, 1000, seconds(9)), seconds(4));
}

}  // namespace
}  // namespace baton
