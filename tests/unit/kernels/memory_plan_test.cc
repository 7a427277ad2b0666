#include "kernels/memory_plan.h"

#include <random>

#include <gtest/gtest.h>

namespace baton {
namespace {

bool Conflict(const Lifetime& a, size_t a_offset, const Lifetime& b, size_t b_offset) {
  return a.first <= b.last && b.first <= a.last && a_offset < b_offset + b.bytes &&
         b_offset < a_offset + a.bytes;
}

void ExpectNoConflict(const std::vector<Lifetime>& lifetimes, const MemoryPlan& plan) {
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    EXPECT_EQ(plan.offsets[i] % kPlanAlignment, 0u);
    EXPECT_LE(plan.offsets[i] + lifetimes[i].bytes, plan.bytes);
    for (size_t j = 0; j < i; ++j) {
      ASSERT_FALSE(Conflict(lifetimes[i], plan.offsets[i], lifetimes[j], plan.offsets[j]))
          << i << " and " << j;
    }
  }
}

TEST(MemoryPlanTest, WhatIsUsedAtDifferentTimesSharesMemory) {
  const std::vector<Lifetime> lifetimes = {{1000, 0, 1}, {1000, 2, 3}, {500, 0, 3}};
  const MemoryPlan plan = PlanMemory(lifetimes);
  ExpectNoConflict(lifetimes, plan);
  EXPECT_EQ(plan.offsets, (std::vector<size_t>{0, 0, 1024}));
  EXPECT_EQ(plan.bytes, 1536u);
  EXPECT_EQ(LargestInUse(lifetimes), 1536u);
}

TEST(MemoryPlanTest, WhatAnOpReadsAndWhatItWritesAreApart) {
  const std::vector<Lifetime> lifetimes = {{256, 0, 1}, {256, 1, 2}};
  ExpectNoConflict(lifetimes, PlanMemory(lifetimes));
  EXPECT_EQ(PlanMemory(lifetimes).bytes, 512u);
}

TEST(MemoryPlanTest, AFixedOffsetIsKept) {
  const std::vector<Lifetime> lifetimes = {{4096, 0, 9}, {512, 5, 9, 0}, {512, 0, 4}};
  const MemoryPlan plan = PlanMemory(lifetimes);
  ExpectNoConflict(lifetimes, plan);
  EXPECT_EQ(plan.offsets, (std::vector<size_t>{512, 0, 0}));
}

TEST(MemoryPlanTest, AHoleIsUsedWhereItHasRoom) {
  const std::vector<Lifetime> lifetimes = {{1024, 0, 1}, {1024, 0, 9}, {512, 2, 9}, {768, 2, 9}};
  const MemoryPlan plan = PlanMemory(lifetimes);
  ExpectNoConflict(lifetimes, plan);
  EXPECT_EQ(plan.bytes, LargestInUse(lifetimes));
}

TEST(MemoryPlanTest, NothingNeedsNoMemory) {
  EXPECT_EQ(PlanMemory({}).bytes, 0u);
  EXPECT_EQ(LargestInUse({}), 0u);
}

TEST(MemoryPlanTest, RandomLifetimesNeverConflict) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<Lifetime> lifetimes(random() % 60);
    for (Lifetime& one : lifetimes) {
      one.bytes = random() % 5000;
      one.first = random() % 40;
      one.last = one.first + random() % 12;
    }
    const MemoryPlan plan = PlanMemory(lifetimes);
    ExpectNoConflict(lifetimes, plan);
    EXPECT_GE(plan.bytes, LargestInUse(lifetimes));
  }
}

}  // namespace
}  // namespace baton
