#include "common/engine/step_watch.h"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

namespace baton {
namespace {

using std::chrono::milliseconds;

TEST(StepWatchTest, ACallThatDoesNotEndIsToldOnce) {
  std::atomic<int> overdue = 0;
  StepWatch watch(milliseconds(40), [&] {
    ++overdue;
    overdue.notify_all();
  });
  for (int i = 0; i < 3; ++i) const StepWatch::Call call(&watch);
  EXPECT_EQ(overdue, 0);
  for (int i = 0; i < 2; ++i) {
    const StepWatch::Call call(&watch);
    overdue.wait(0);
    std::this_thread::sleep_for(milliseconds(60));
  }
  EXPECT_EQ(overdue, 1);
}

TEST(StepWatchTest, CallsThatEndAndIdlingAreNot) {
  constexpr auto kLimit = milliseconds(500);
  std::atomic<int> overdue = 0;
  StepWatch watch(kLimit, [&] { ++overdue; });
  for (int i = 0; i < 3; ++i) {
    {
      const StepWatch::Call call(&watch);
      std::this_thread::sleep_for(kLimit / 5);
    }
    std::this_thread::sleep_for(kLimit * 3 / 2);
  }
  EXPECT_EQ(overdue, 0);
}

TEST(StepWatchTest, ThereMayBeNone) {
  const StepWatch::Call call(nullptr);
}

}  // namespace
}  // namespace baton
