#include "common/kvcache/kv_cache.h"

#include <gtest/gtest.h>

#include "common/kvcache/block_hash.h"
#include "common/kvcache/copy_sources.h"

namespace baton {
namespace {

constexpr int32_t kBlockTokens = 4;

std::vector<TokenId> Tokens(int count, TokenId first = 0) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(first + i);
  return tokens;
}

// Stores all full blocks of `tokens`, whose KV is in `table`.
void StoreAll(KvCache& cache, Lease& table, const std::vector<TokenId>& tokens, bool adopt) {
  const auto hashes = BlockHashes(tokens, kBlockTokens, {});
  CacheEntryId parent = kRootEntry;
  for (size_t i = 0; i < hashes.size(); ++i) {
    const auto block = std::span(tokens).subspan(i * kBlockTokens, kBlockTokens);
    const auto entry = cache.Store(table, static_cast<int32_t>(i), hashes[i], parent, block, adopt);
    ASSERT_TRUE(entry);
    parent = *entry;
  }
}

PrefixHit Match(const KvCache& cache, const std::vector<TokenId>& tokens, int32_t limit = 99) {
  return cache.Match(BlockHashes(tokens, kBlockTokens, {}), tokens, limit);
}

TEST(KvCacheTest, GrowIsAllOrNothing) {
  KvCache cache(4, kBlockTokens, true);
  Lease lease(cache);
  EXPECT_FALSE(lease.Grow(5));
  EXPECT_EQ(lease.size(), 0);
  EXPECT_TRUE(lease.Grow(4));
  EXPECT_EQ(cache.available(), 0);
  lease.Clear();
  EXPECT_EQ(cache.available(), 4);
}

TEST(KvCacheTest, ReleasedBlocksKeepTheIndicesOfTheOthers) {
  KvCache cache(6, kBlockTokens, false);
  Lease lease(cache);
  ASSERT_TRUE(lease.Grow(4));
  const std::vector<BlockId> before(lease.blocks().begin(), lease.blocks().end());
  lease.ReleaseBefore(2);
  EXPECT_EQ(cache.available(), 4);
  EXPECT_EQ(lease.size(), 4);
  EXPECT_EQ(lease.first(), 2);
  EXPECT_EQ(lease.blocks()[3], before[3]);
  // A kernel that reads a released entry reads a block of the lease.
  EXPECT_EQ(lease.blocks()[0], before[2]);
  EXPECT_EQ(lease.blocks()[1], before[2]);
  lease.ReleaseBefore(1);  // released already
  EXPECT_EQ(cache.available(), 4);
  Lease shared = lease.Share(4);
  const Lease* all[] = {&lease, &shared};
  EXPECT_TRUE(cache.Check(all).ok()) << cache.Check(all);
  EXPECT_EQ(shared.first(), 2);
  std::optional<BlockCopy> copy;
  ASSERT_TRUE(shared.MakeExclusive(2, copy));
  EXPECT_TRUE(copy.has_value());
  EXPECT_EQ(shared.blocks()[0], shared.blocks()[2]);
  EXPECT_EQ(lease.blocks()[0], before[2]);
  EXPECT_TRUE(cache.Check(all).ok()) << cache.Check(all);
  lease = std::move(shared);
  EXPECT_EQ(cache.available(), 4);
  EXPECT_EQ(lease.Share(1).size(), 1);
  lease.Clear();
  EXPECT_EQ(cache.available(), 6);
  ASSERT_TRUE(lease.Grow(6));
  EXPECT_EQ(lease.first(), 0);
}

TEST(KvCacheTest, LeaseLetsGoWhenItEnds) {
  KvCache cache(4, kBlockTokens, true);
  {
    Lease lease(cache);
    ASSERT_TRUE(lease.Grow(3));
    Lease moved = std::move(lease);
    EXPECT_EQ(cache.available(), 1);
    const Lease shared = moved.Share(2);
    moved.Clear();
    EXPECT_EQ(cache.available(), 2);
    const Lease* all[] = {&moved, &shared};
    EXPECT_TRUE(cache.Check(all).ok());
    EXPECT_EQ(cache.CountLeaked({}), 2);
  }
  EXPECT_EQ(cache.available(), 4);
  EXPECT_EQ(cache.CountLeaked({}), 0);
}

TEST(KvCacheTest, PrefixIsFoundUntilItsBlocksAreTaken) {
  KvCache cache(4, kBlockTokens, true);
  const auto tokens = Tokens(12);
  {
    Lease table(cache);
    ASSERT_TRUE(table.Grow(3));
    StoreAll(cache, table, tokens, false);
    EXPECT_EQ(Match(cache, tokens).idle, 0);
  }
  EXPECT_EQ(Match(cache, tokens).blocks.size(), 3u);
  EXPECT_EQ(Match(cache, tokens).idle, 3);
  EXPECT_EQ(Match(cache, tokens, 2).blocks.size(), 2u);
  EXPECT_EQ(Match(cache, Tokens(12, 1)).blocks.size(), 0u);
  auto other_end = tokens;
  other_end[9] = 77;
  EXPECT_EQ(Match(cache, other_end).blocks.size(), 2u);
  // The block that was never used is taken first, then the end of the prefix.
  Lease taker(cache);
  ASSERT_TRUE(taker.Grow(2));
  EXPECT_EQ(Match(cache, tokens).blocks.size(), 2u);
  ASSERT_TRUE(taker.Grow(1));
  EXPECT_EQ(Match(cache, tokens).blocks.size(), 1u);
  EXPECT_EQ(cache.cached(), 1);
}

TEST(KvCacheTest, EqualContentIsKeptOnce) {
  KvCache cache(8, kBlockTokens, true);
  const auto tokens = Tokens(8);
  Lease first(cache);
  Lease second(cache);
  Lease third(cache);
  ASSERT_TRUE(first.Grow(2) && second.Grow(2) && third.Grow(2));
  StoreAll(cache, first, tokens, true);
  StoreAll(cache, second, tokens, true);
  StoreAll(cache, third, tokens, false);
  EXPECT_EQ(std::vector(second.blocks().begin(), second.blocks().end()),
            std::vector(first.blocks().begin(), first.blocks().end()));
  EXPECT_NE(third.blocks()[0], first.blocks()[0]);
  EXPECT_EQ(cache.cached(), 2);
  EXPECT_EQ(cache.available(), 4);
  const Lease* all[] = {&first, &second, &third};
  EXPECT_TRUE(cache.Check(all).ok());
}

// A block of lease one_, and its copy in lease two_, which shared the block before.
class CopiedBlockTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(one_.Grow(1));
    two_ = one_.Share(1);
    ASSERT_TRUE(two_.MakeExclusive(0, copy_));
    ASSERT_TRUE(copy_);
  }

  KvCache cache_{2, kBlockTokens, true};
  Lease one_{cache_};
  Lease two_;
  std::optional<BlockCopy> copy_;
};

TEST_F(CopiedBlockTest, SharedBlockIsCopiedBeforeItIsWritten) {
  EXPECT_EQ(copy_->from, static_cast<int32_t>(one_.blocks()[0].value()));
  EXPECT_EQ(copy_->to, static_cast<int32_t>(two_.blocks()[0].value()));
  copy_.reset();
  EXPECT_TRUE(one_.MakeExclusive(0, copy_));
  EXPECT_FALSE(copy_) << "its only user writes in place";
  Lease three = one_.Share(1);
  EXPECT_FALSE(three.MakeExclusive(0, copy_)) << "no block is left";
}

TEST_F(CopiedBlockTest, WhatACopyReadsIsNotFreeButMayBeWrittenByItsLastLease) {
  CopySources sources;
  sources.Add(cache_, BlockId(static_cast<uint32_t>(copy_->from)));
  EXPECT_TRUE(one_.IsExclusive(0));
  Lease three = one_.Share(1);
  EXPECT_FALSE(one_.IsExclusive(0));
  three.Clear();
  one_.Clear();
  EXPECT_EQ(cache_.available(), 0);
  const Lease* all[] = {&one_, &two_, &sources.lease()};
  EXPECT_TRUE(cache_.Check(all).ok()) << cache_.Check(all);
  EXPECT_EQ(cache_.CountLeaked(all), 0);
  sources.Clear();
  EXPECT_EQ(cache_.available(), 1);
  EXPECT_TRUE(cache_.Check(all).ok()) << cache_.Check(all);
}

TEST(KvCacheTest, WithoutPrefixCacheNothingIsFound) {
  KvCache cache(4, kBlockTokens, false);
  Lease table(cache);
  ASSERT_TRUE(table.Grow(1));
  const auto tokens = Tokens(4);
  EXPECT_FALSE(
      cache.Store(table, 0, BlockHashes(tokens, kBlockTokens, {})[0], kRootEntry, tokens, true));
  EXPECT_TRUE(Match(cache, tokens).blocks.empty());
  EXPECT_EQ(cache.cached(), 0);
}

}  // namespace
}  // namespace baton
