#include "tests/explorer/explorer.h"

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

// Every schedule of two requests' hand-offs with up to two deviations, every schedule of one
// request's hand-off with up to three, and random schedules with up to 40. In each, no block is in
// two leases, no block, window or session is left over, every request ends, and what is committed
// has exactly the bytes of its prompt.
namespace baton {
namespace {

// Runs an exploration, prints what it covered, and fails with the schedule that broke an invariant.
template <class Explore>
Exploration RunAndReport(std::string_view what, uint32_t requests, const Explore& explore) {
  const auto begin = std::chrono::steady_clock::now();
  Exploration outcome = explore();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  fmt::print(
      "{}: {} schedules ({} distinct traces, {} steps, {} distinct states) in {:.1f} s: {:.0f} a "
      "second; {} served, {} "
      "committed, {} redirects, {} quarantines\n",
      what,
      outcome.schedules,
      outcome.traces,
      outcome.steps,
      outcome.states,
      seconds.count(),
      static_cast<double>(outcome.schedules) / seconds.count(),
      outcome.served,
      outcome.committed,
      outcome.redirects,
      outcome.quarantined);
  EXPECT_EQ(outcome.violation, "")
      << "replay: " << requests << " requests, schedule '" << ToText(outcome.failing) << "'";
  return outcome;
}

TEST(Explorer, WithoutDeviationsEveryRequestIsServed) {
  for (const uint32_t requests : {1u, 2u}) {
    const Exploration outcome = RunAndReport(
        "no deviations", requests, [&] { return ExploreAll(HandoffWorld(requests), 0); });
    EXPECT_EQ(outcome.schedules, 1u);
    EXPECT_EQ(outcome.served, requests);
    EXPECT_EQ(outcome.committed, requests);
  }
}

TEST(Explorer, EveryScheduleOfTwoRequestsWithTwoDeviations) {
  const Exploration outcome =
      RunAndReport("2 requests, 2 deviations", 2, [] { return ExploreAll(HandoffWorld(2), 2); });
  EXPECT_GT(outcome.redirects, 0u);
  EXPECT_GT(outcome.quarantined, 0u);
}

// Three deviations are what it takes to undo several defences at once: a write that lands late, a
// close that cannot be proven, and a sender that is gone.
TEST(Explorer, EveryScheduleOfTheDataPathWithThreeDeviations) {
  const Exploration outcome = RunAndReport("1 request, 3 deviations of the data path", 1, [] {
    return ExploreAll(HandoffWorld(1), 3, Scope::kDataPath);
  });
  EXPECT_GT(outcome.quarantined, 0u);
}

TEST(Explorer, RandomSchedulesWithManyDeviations) {
  const Exploration outcome = RunAndReport(
      "2 requests, random", 2, [] { return ExploreRandom(HandoffWorld(2), 1, 200'000); });
  EXPECT_EQ(outcome.schedules, 200'000u);
  EXPECT_GT(outcome.committed, 0u);
  EXPECT_GT(outcome.quarantined, 0u);
}

// The whole set of one request takes minutes: with the label `soak`, not by default.
TEST(Explorer, DISABLED_EveryScheduleOfOneRequestWithThreeDeviations) {
  const Exploration outcome =
      RunAndReport("1 request, 3 deviations", 1, [] { return ExploreAll(HandoffWorld(1), 3); });
  EXPECT_GT(outcome.redirects, 0u);
}

// As a pair of workers that both prefill and decode has it in one direction.
TEST(Explorer, EveryScheduleOfTwoRequestsWhoseDecodeWorkerTakesItsBlocksFirst) {
  const HandoffWorld world(2, HandoffWorld::Fence::kRight, HandoffWorld::Order::kDecodeFirst);
  const Exploration plain = RunAndReport("decode first", 2, [&] { return ExploreAll(world, 0); });
  EXPECT_EQ(plain.served, 2u);
  (void)RunAndReport("decode first, 1 deviation", 2, [&] { return ExploreAll(world, 1); });
  (void)RunAndReport("decode first, random", 2, [&] { return ExploreRandom(world, 1, 50'000); });
}

HandoffWorld WorldOf(HandoffWorld::Groups groups, uint32_t requests, HandoffWorld::Fence fence) {
  return HandoffWorld(requests, fence, HandoffWorld::Order::kPrefillFirst, groups);
}

void ExploreGroups(std::string_view what, HandoffWorld::Groups groups) {
  const HandoffWorld one = WorldOf(groups, 1, HandoffWorld::Fence::kRight);
  const HandoffWorld two = WorldOf(groups, 2, HandoffWorld::Fence::kRight);
  const Exploration plain = RunAndReport(what, 2, [&] { return ExploreAll(two, 0); });
  EXPECT_EQ(plain.committed, 2u);
  (void)RunAndReport(fmt::format("{}, 1 deviation", what), 2, [&] { return ExploreAll(two, 1); });
  (void)RunAndReport(fmt::format("{}, 2 deviations of the data path", what), 1, [&] {
    return ExploreAll(one, 2, Scope::kDataPath);
  });
  (void)RunAndReport(
      fmt::format("{}, random", what), 2, [&] { return ExploreRandom(two, 1, 50'000); });
}

// Of a cache group with a window only the last block of the prompt moves.
TEST(Explorer, EveryScheduleOfTwoCacheGroups) {
  ExploreGroups("two groups", HandoffWorld::Groups::kTwo);
  const auto unfenced = WorldOf(HandoffWorld::Groups::kTwo, 2, HandoffWorld::Fence::kMissing);
  EXPECT_NE(ExploreAll(unfenced, 2).violation, "");
}

// Beside the blocks the state after the prompt moves.
TEST(Explorer, EveryScheduleOfAState) {
  ExploreGroups("states", HandoffWorld::Groups::kState);
  const auto unfenced =
      WorldOf(HandoffWorld::Groups::kState, 2, HandoffWorld::Fence::kMissingForStates);
  EXPECT_THAT(ExploreAll(unfenced, 2).violation,
              testing::HasSubstr("in a block that its session does not hold"));
  const auto hasty = WorldOf(HandoffWorld::Groups::kState, 2, HandoffWorld::Fence::kHastyForStates);
  EXPECT_THAT(ExploreAll(hasty, 1).violation, testing::HasSubstr("the bytes of another writer"));
}

TEST(Explorer, HandoffsInCrossedOrdersWaitForEachOther) {
  const HandoffWorld world(2, HandoffWorld::Fence::kRight, HandoffWorld::Order::kCrossed);
  const Exploration outcome = ExploreAll(world, 1);
  EXPECT_THAT(outcome.violation, testing::HasSubstr("wait for each other's blocks"));
}

TEST(Explorer, AViolationIsFoundAndItsScheduleReplays) {
  const HandoffWorld wrong(2, HandoffWorld::Fence::kMissing);
  for (const Exploration& outcome : {ExploreAll(wrong, 2), ExploreRandom(wrong, 1, 20'000)}) {
    EXPECT_NE(outcome.violation, "");
    const StatusOr<Schedule> schedule = ParseSchedule(ToText(outcome.failing));
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    EXPECT_EQ(*schedule, outcome.failing);
    EXPECT_EQ(Replay(wrong, *schedule), outcome.violation);
    EXPECT_EQ(Replay(HandoffWorld(2), *schedule), "");
  }
}

TEST(Explorer, AScheduleIsReadAsItIsWritten) {
  const StatusOr<Schedule> schedule = ParseSchedule("5:late 9:crash-decode 14:tear");
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_EQ(ToText(*schedule), "5:late 9:crash-decode 14:tear");
  EXPECT_EQ(Replay(HandoffWorld(2), *schedule), "");
  EXPECT_FALSE(ParseSchedule("5:laet").ok());
  EXPECT_FALSE(ParseSchedule("late").ok());
}

}  // namespace
}  // namespace baton
