#include "common/kvcache/block_pool.h"

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(BlockPoolTest, GivesEveryBlockOnce) {
  BlockPool pool(8);
  std::vector<bool> seen(8);
  for (int i = 0; i < 8; ++i) {
    const auto block = pool.Take(0);
    ASSERT_TRUE(block.has_value());
    EXPECT_FALSE(seen[block->value()]);
    seen[block->value()] = true;
  }
  EXPECT_FALSE(pool.Take(0).has_value());
  EXPECT_EQ(pool.available(), 0);
}

TEST(BlockPoolTest, EmptyBlocksGoBeforeCachedOnesAndThoseByAge) {
  BlockPool pool(4);
  std::vector<BlockId> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(*pool.Take(0));
  for (int i : {2, 0, 3}) pool.MarkCached(blocks[i]);
  for (int i : {2, 0, 1, 3}) pool.Release(blocks[i]);
  pool.Retain(blocks[2]);  // used again, so it becomes the most recently used
  pool.Release(blocks[2]);
  for (int i : {1, 0, 3, 2}) EXPECT_EQ(*pool.Take(0), blocks[i]);
}

TEST(BlockPoolTest, SharedBlockIsFreeAfterTheLastUser) {
  BlockPool pool(1);
  const BlockId block = *pool.Take(0);
  pool.Retain(block);
  pool.Release(block);
  EXPECT_EQ(pool.available(), 0);
  pool.Release(block);
  EXPECT_EQ(pool.available(), 1);
}

TEST(BlockPoolDeathTest, MisuseStops) {
  BlockPool pool(2);
  const BlockId block = *pool.Take(0);
  pool.Release(block);
  EXPECT_DEATH(pool.Release(block), "more often");
  EXPECT_DEATH(pool.Retain(block), "no content");
  EXPECT_DEATH(pool.Retain(BlockId(1, block.index())), "of tier 1 is not in the arena");
}

TEST(BlockPoolTest, CheckFindsWrongCounts) {
  BlockPool pool(2);
  const BlockId block = *pool.Take(0);
  std::vector<int32_t> refs(2);
  EXPECT_FALSE(pool.Check(refs).ok());
  refs[block.value()] = 1;
  EXPECT_TRUE(pool.Check(refs).ok());
  refs[block.value()] = 2;
  EXPECT_FALSE(pool.Check(refs).ok());
}

TEST(BlockPoolTest, RandomUseKeepsTheBooks) {
  std::mt19937 random(1);
  BlockPool pool(32, 3);
  std::vector<int32_t> refs(32);
  std::vector<size_t> group_of(32);
  for (int step = 0; step < 20000; ++step) {
    const BlockId block(random() % 32);
    int32_t& count = refs[block.value()];
    switch (random() % 4) {
      case 0:
        if (const auto taken = pool.Take(step % 3)) {
          ASSERT_EQ(refs[taken->value()]++, 0);
          group_of[taken->value()] = static_cast<size_t>(step % 3);
          if (pool.is_cached(*taken)) pool.ClearCached(*taken);
        }
        break;
      case 1:
        if (count > 0 || pool.is_cached(block)) pool.Retain(block), ++count;
        break;
      case 2:
        if (count > 0) pool.Release(block), --count;
        break;
      default:
        if (count > 0 && !pool.is_cached(block)) pool.MarkCached(block);
    }
    const Status status = pool.Check(refs);
    ASSERT_TRUE(status.ok()) << status;
    std::vector<int32_t> held(3);
    for (size_t i = 0; i < refs.size(); ++i) held[group_of[i]] += refs[i] > 0;
    ASSERT_TRUE(std::ranges::equal(pool.held(), held));
  }
}

}  // namespace
}  // namespace baton
