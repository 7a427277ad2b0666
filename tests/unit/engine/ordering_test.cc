#include "common/engine/ordering.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr Duration kTokenTime = milliseconds(1);

Request At(Duration arrival) {
  Request request;
  request.arrival = Time{} + std::chrono::hours(1) + arrival;
  request.max_tokens = 100;
  return request;
}

TEST(OrderingTest, FcfsIsArrival) {
  const Ordering ordering(SchedulingPolicy::kFcfs);
  EXPECT_EQ(ordering.VirtualTime(At(seconds(3)), 999, kTokenTime), At(seconds(3)).arrival);
}

TEST(OrderingTest, ARequestThatIsDispatchedAgainKeepsItsTurn) {
  for (const auto policy : {SchedulingPolicy::kFcfs,
                            SchedulingPolicy::kPriority,
                            SchedulingPolicy::kShortestPrefill,
                            SchedulingPolicy::kDeadline}) {
    const Ordering ordering(policy);
    Request again = At(seconds(5));
    again.age = seconds(4);
    EXPECT_LT(ordering.VirtualTime(again, 10, kTokenTime),
              ordering.VirtualTime(At(seconds(2)), 10, kTokenTime));
  }
}

TEST(OrderingTest, HigherPriorityGoesFirstButLowNeverStarves) {
  const Ordering ordering(SchedulingPolicy::kPriority);
  Request low = At(seconds(0));
  Request high = At(seconds(10));
  high.priority = 1;
  EXPECT_LT(ordering.VirtualTime(high, 1, kTokenTime), ordering.VirtualTime(low, 1, kTokenTime));
  high = At(seconds(31));
  high.priority = 1;
  EXPECT_GT(ordering.VirtualTime(high, 1, kTokenTime), ordering.VirtualTime(low, 1, kTokenTime));
}

TEST(OrderingTest, ExtremePrioritiesDoNotOverflow) {
  const Ordering ordering(SchedulingPolicy::kPriority);
  Request low = At({});
  Request high = At({});
  low.priority = INT32_MIN;
  high.priority = INT32_MAX;
  EXPECT_LT(ordering.VirtualTime(high, 1, kTokenTime), ordering.VirtualTime(low, 1, kTokenTime));
}

TEST(OrderingTest, ShorterPromptGoesFirstForAWhile) {
  const Ordering ordering(SchedulingPolicy::kShortestPrefill);
  const Time longer = ordering.VirtualTime(At({}), 5000, kTokenTime);
  EXPECT_LT(ordering.VirtualTime(At(seconds(4)), 100, kTokenTime), longer);
  EXPECT_GT(ordering.VirtualTime(At(seconds(6)), 100, kTokenTime), longer);
}

TEST(OrderingTest, LeastLaxityCountsTheWork) {
  const Ordering ordering(SchedulingPolicy::kDeadline);
  Request one = At({});
  Request other = At({});
  one.deadline = one.arrival + seconds(10);
  other.deadline = other.arrival + seconds(9);
  EXPECT_LT(ordering.VirtualTime(one, 5000, kTokenTime),
            ordering.VirtualTime(other, 10, kTokenTime));
  // A request without a deadline has a bounded virtual time.
  EXPECT_LE(ordering.VirtualTime(At({}), 0, kTokenTime), At(minutes(10)).arrival);
}

}  // namespace
}  // namespace baton
