#include <chrono>
#include <vector>

#include <gtest/gtest.h>

#include "kvtransfer/one_sided/grant_table.h"

namespace baton {
namespace {

TEST(GrantTableTest, AWindowThatNobodyHoldsIsClosedAtOnce) {
  GrantTable table{std::chrono::seconds(1)};
  table.Close(5, 2);
  const std::vector<Arrival> arrivals = table.TakeArrivals();
  ASSERT_EQ(arrivals.size(), 1u);
  EXPECT_EQ(arrivals[0].kind, Arrival::Kind::kClosed);
  EXPECT_EQ(arrivals[0].window_key, 5u);
  EXPECT_EQ(arrivals[0].region, 2u);
}

TEST(GrantTableTest, EveryHolderMustBeDone) {
  GrantTable table{std::chrono::seconds(1)};
  table.Give(1, 5);
  table.Give(2, 5);
  table.Give(2, 6);
  table.Close(5, 0);
  table.OnDrained(3, 5);
  table.OnDrained(1, 5);
  table.OnDrained(2, 6);
  EXPECT_TRUE(table.TakeArrivals().empty());
  EXPECT_TRUE(table.is_closing());
  table.OnDrained(2);
  EXPECT_EQ(table.TakeArrivals().size(), 1u);
  EXPECT_FALSE(table.is_closing());
  EXPECT_FALSE(table.holds_any(2));
}

TEST(GrantTableTest, ALateConfirmationStillCloses) {
  GrantTable table{std::chrono::seconds(1)};
  const Time start{std::chrono::hours(1)};
  table.Give(1, 5);
  table.OnTime(start);
  table.Close(5, 0);
  table.OnTime(start + std::chrono::seconds(5));
  table.OnTime(start + std::chrono::seconds(5) + std::chrono::milliseconds(999));
  EXPECT_TRUE(table.TakeArrivals().empty());
  table.OnTime(start + std::chrono::seconds(6));
  table.OnTime(start + std::chrono::seconds(9));
  std::vector<Arrival> arrivals = table.TakeArrivals();
  ASSERT_EQ(arrivals.size(), 1u);
  EXPECT_EQ(arrivals[0].kind, Arrival::Kind::kUnfenced);
  EXPECT_FALSE(arrivals[0].status.ok());
  table.OnDrained(1, 5);
  arrivals = table.TakeArrivals();
  ASSERT_EQ(arrivals.size(), 1u);
  EXPECT_EQ(arrivals[0].kind, Arrival::Kind::kClosed);
}

}  // namespace
}  // namespace baton
