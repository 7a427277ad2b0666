#include "common/engine/step_timer.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

Time At(int ms) {
  return Time() + std::chrono::milliseconds(ms);
}

TEST(StepTimerTest, AWaitBetweenStepsIsNotCounted) {
  StepTimer timer;
  timer.Begin(At(10));
  timer.End(At(14));
  timer.Begin(At(100));
  timer.End(At(103));
  EXPECT_EQ(timer.steps(), 2);
  EXPECT_EQ(timer.total(), std::chrono::milliseconds(7));
}

TEST(StepTimerTest, TimeInWhichSeveralStepsAreUnderWayCountsOnce) {
  StepTimer timer;
  timer.Begin(At(10));
  timer.Begin(At(12));
  timer.End(At(20));
  timer.Begin(At(21));
  timer.End(At(26));
  timer.End(At(30));
  EXPECT_EQ(timer.steps(), 3);
  EXPECT_EQ(timer.total(), std::chrono::milliseconds(20));
}

}  // namespace
}  // namespace baton
