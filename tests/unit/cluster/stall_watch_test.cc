#include "common/cluster/stall_watch.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

using std::chrono::seconds;
using Change = StallWatch::Change;

constexpr Time kStart{std::chrono::hours(1)};

TEST(StallWatchTest, TellsOnceWhenItBeginsAndWhenItEnds) {
  StallWatch watch;
  EXPECT_EQ(watch.Observe(true, false, 7, kStart), Change::kNone);
  EXPECT_EQ(watch.Observe(true, false, 7, kStart + seconds(4)), Change::kNone);
  EXPECT_EQ(watch.stalled(), Duration::zero());
  EXPECT_EQ(watch.Observe(true, false, 7, kStart + seconds(5)), Change::kBegan);
  EXPECT_EQ(watch.Observe(true, false, 7, kStart + seconds(9)), Change::kNone);
  EXPECT_EQ(watch.stalled(), Duration(seconds(9)));
  EXPECT_EQ(watch.Observe(true, true, 7, kStart + seconds(10)), Change::kEnded);
  EXPECT_EQ(watch.stalled(), Duration::zero());
}

TEST(StallWatchTest, WhatRunsWasComputedOrIsIdleIsNoStall) {
  StallWatch watch;
  for (int i = 0; i < 60; ++i) {
    const Time now = kStart + seconds(i);
    EXPECT_EQ(watch.Observe(false, false, 0, now), Change::kNone) << "nobody waits";
  }
  for (int i = 60; i < 120; ++i) {
    const Time now = kStart + seconds(i);
    EXPECT_EQ(watch.Observe(true, i % 2 == 0, 0, now), Change::kNone) << "something runs";
  }
  for (int i = 120; i < 180; ++i) {
    const Time now = kStart + seconds(i);
    EXPECT_EQ(watch.Observe(true, false, i, now), Change::kNone) << "something was computed";
  }
}

}  // namespace
}  // namespace baton
