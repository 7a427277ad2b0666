#include "common/http/http_limits.h"

#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(ConnectionSlotsTest, ReservedSlotsBeginWhereALimitIsReached) {
  ConnectionSlots slots({.connections = 3, .per_address = 2, .reserved = 1});
  std::vector<ConnectionSlots::Slot> taken;
  taken.push_back(slots.Take("a"));
  taken.push_back(slots.Take("a"));
  EXPECT_FALSE(taken.back().reserved());
  taken.push_back(slots.Take("a"));
  EXPECT_TRUE(taken.back().held());
  EXPECT_TRUE(taken.back().reserved());
  EXPECT_EQ(taken.back().over_limit(),
            "address a has 2 connections, the most that one address may have");
  taken.push_back(slots.Take("b"));
  EXPECT_FALSE(taken.back().reserved());
  const ConnectionSlots::Slot none = slots.Take("c");
  EXPECT_FALSE(none.held());
  EXPECT_EQ(none.over_limit(), "all 3 connections are in use");
  EXPECT_EQ(slots.taken(), 4);
  taken.clear();
  EXPECT_EQ(slots.taken(), 0);
  EXPECT_FALSE(slots.Take("a").reserved());
}

TEST(ConnectionSlotsTest, ASlotIsGivenBackOnce) {
  ConnectionSlots slots({.connections = 2, .per_address = 2, .reserved = 1});
  ConnectionSlots::Slot first = slots.Take("a");
  {
    ConnectionSlots::Slot moved = std::move(first);
    EXPECT_EQ(slots.taken(), 1);
    moved.Release();
    EXPECT_EQ(slots.taken(), 0);
  }
  EXPECT_EQ(slots.taken(), 0);
}

TEST(ByteBudgetTest, SharesGrowUntilTheBudgetIsUsed) {
  ByteBudget budget(100);
  ByteBudget::Share first(budget);
  std::optional<ByteBudget::Share> second(budget);
  EXPECT_TRUE(first.GrowTo(60));
  EXPECT_FALSE(second->GrowTo(41));
  EXPECT_TRUE(second->GrowTo(40));
  EXPECT_FALSE(first.GrowTo(61));
  EXPECT_EQ(budget.used(), 100u);
  ByteBudget::Share moved = std::move(*second);
  second.reset();
  EXPECT_EQ(budget.used(), 100u);
  moved.Release();
  EXPECT_TRUE(first.GrowTo(100));
  first = ByteBudget::Share(budget);
  EXPECT_EQ(budget.used(), 0u);
}

}  // namespace
}  // namespace baton
