#include "common/kvcache/kv_cache.h"

#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/kvcache/block_hash.h"
#include "common/kvcache/copy_sources.h"
#include "tests/unit/kvcache/stored_tokens.h"

namespace baton {
namespace {

TEST(KvCacheTest, GrowIsAllOrNothing) {
  KvCache cache(4, kBlockTokens, true);
  Lease lease(cache);
  EXPECT_FALSE(lease.GrowTo(5));
  EXPECT_EQ(lease.size(), 0);
  EXPECT_TRUE(lease.GrowTo(4));
  EXPECT_EQ(cache.available(), 0);
  lease.Clear();
  EXPECT_EQ(cache.available(), 4);
}

TEST(KvCacheTest, ReleasedBlocksKeepTheIndicesOfTheOthers) {
  KvCache cache(6, kBlockTokens, false);
  Lease lease(cache);
  ASSERT_TRUE(lease.GrowTo(4));
  const std::vector<BlockId> before(lease.blocks(0).begin(), lease.blocks(0).end());
  lease.ReleaseBefore(0, 2);
  EXPECT_EQ(cache.available(), 4);
  EXPECT_EQ(lease.size(), 4);
  EXPECT_EQ(lease.first(0), 2);
  EXPECT_EQ(lease.blocks(0)[3], before[3]);
  // A kernel that reads a released entry reads a block of the lease.
  EXPECT_EQ(lease.blocks(0)[0], before[2]);
  EXPECT_EQ(lease.blocks(0)[1], before[2]);
  lease.ReleaseBefore(0, 1);  // released already
  EXPECT_EQ(cache.available(), 4);
  Lease shared = lease.Share(4);
  const Lease* all[] = {&lease, &shared};
  EXPECT_TRUE(cache.Check(all).ok()) << cache.Check(all);
  EXPECT_EQ(shared.first(0), 2);
  std::vector<BlockCopy> copies;
  ASSERT_TRUE(shared.MakeExclusive(2, copies));
  EXPECT_EQ(copies.size(), 1u);
  EXPECT_EQ(shared.blocks(0)[0], shared.blocks(0)[2]);
  EXPECT_EQ(lease.blocks(0)[0], before[2]);
  EXPECT_TRUE(cache.Check(all).ok()) << cache.Check(all);
  lease = std::move(shared);
  EXPECT_EQ(cache.available(), 4);
  EXPECT_EQ(lease.Share(1).size(), 1);
  lease.Clear();
  EXPECT_EQ(cache.available(), 6);
  ASSERT_TRUE(lease.GrowTo(6));
  EXPECT_EQ(lease.first(0), 0);
}

TEST(KvCacheTest, LeaseLetsGoWhenItEnds) {
  KvCache cache(4, kBlockTokens, true);
  {
    Lease lease(cache);
    ASSERT_TRUE(lease.GrowTo(3));
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
    ASSERT_TRUE(table.GrowTo(3));
    StoreAll(cache, table, tokens, false);
    EXPECT_EQ(Match(cache, tokens).idle, 0);
  }
  EXPECT_EQ(Match(cache, tokens).count, 3);
  EXPECT_EQ(Match(cache, tokens).idle, 3);
  EXPECT_EQ(Match(cache, tokens, 2).count, 2);
  EXPECT_EQ(Match(cache, Tokens(12, 1)).count, 0);
  auto other_end = tokens;
  other_end[9] = 77;
  EXPECT_EQ(Match(cache, other_end).count, 2);
  // The block that was never used is taken first, then the end of the prefix.
  Lease taker(cache);
  ASSERT_TRUE(taker.GrowTo(2));
  EXPECT_EQ(Match(cache, tokens).count, 2);
  ASSERT_TRUE(taker.GrowTo(3));
  EXPECT_EQ(Match(cache, tokens).count, 1);
  EXPECT_EQ(cache.cached(), 1);
}

TEST(KvCacheTest, EqualContentIsKeptOnce) {
  KvCache cache(8, kBlockTokens, true);
  const auto tokens = Tokens(8);
  Lease first(cache);
  Lease second(cache);
  Lease third(cache);
  ASSERT_TRUE(first.GrowTo(2) && second.GrowTo(2) && third.GrowTo(2));
  StoreAll(cache, first, tokens, true);
  StoreAll(cache, second, tokens, true);
  StoreAll(cache, third, tokens, false);
  EXPECT_EQ(std::vector(second.blocks(0).begin(), second.blocks(0).end()),
            std::vector(first.blocks(0).begin(), first.blocks(0).end()));
  EXPECT_NE(third.blocks(0)[0], first.blocks(0)[0]);
  EXPECT_EQ(cache.cached(), 2);
  EXPECT_EQ(cache.available(), 4);
  const Lease* all[] = {&first, &second, &third};
  EXPECT_TRUE(cache.Check(all).ok());
}

// A block of lease one_, and its copy in lease two_, which shared the block before.
class CopiedBlockTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(one_.GrowTo(1));
    two_ = one_.Share(1);
    ASSERT_TRUE(two_.MakeExclusive(0, copies_));
    ASSERT_EQ(copies_.size(), 1u);
  }

  KvCache cache_{2, kBlockTokens, true};
  Lease one_{cache_};
  Lease two_;
  std::vector<BlockCopy> copies_;
};

TEST_F(CopiedBlockTest, SharedBlockIsCopiedBeforeItIsWritten) {
  EXPECT_EQ(copies_[0].from, static_cast<int32_t>(one_.blocks(0)[0].value()));
  EXPECT_EQ(copies_[0].to, static_cast<int32_t>(two_.blocks(0)[0].value()));
  EXPECT_TRUE(one_.MakeExclusive(0, copies_));
  EXPECT_EQ(copies_.size(), 1u) << "its only user writes in place";
  Lease three = one_.Share(1);
  EXPECT_FALSE(three.MakeExclusive(0, copies_)) << "no block is left";
}

TEST_F(CopiedBlockTest, WhatACopyReadsIsNotFreeButMayBeWrittenByItsLastLease) {
  CopySources sources;
  sources.Add(cache_, BlockId(static_cast<uint32_t>(copies_[0].from)));
  EXPECT_TRUE(one_.HasRoom(1, 0));
  Lease three = one_.Share(1);
  EXPECT_FALSE(one_.HasRoom(1, 0));
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

// A group without a window, and one whose tokens read 6 tokens: the block of the next token and at
// most two before it.
class CacheGroupsTest : public testing::Test {
 protected:
  explicit CacheGroupsTest(KvWindow window = 6) : cache_(32, kBlockTokens, true, {0, window}) {}
  // Stores a prefix of `count` blocks, as a sequence does that then moves on by `count` blocks.
  void StorePrefix(int32_t count) {
    Lease table(cache_);
    ASSERT_TRUE(table.GrowTo(count));
    StoreAll(cache_, table, Tokens(count * kBlockTokens), false);
  }
  // Takes the content of a block out of the cache.
  void Evict(int32_t group, int32_t index) {
    const auto hashes = BlockHashes(tokens_, kBlockTokens, {});
    std::optional<PrefixCache::Entry> entry = PrefixCache::Entry{};
    for (size_t i = 0; std::cmp_less_equal(i, index) && entry; ++i) {
      entry = cache_.prefix().Find(
          hashes[i], entry->id, std::span(tokens_).subspan(i * kBlockTokens, kBlockTokens));
    }
    ASSERT_TRUE(entry);
    const auto block = cache_.prefix().BlockOf(*entry, group);
    ASSERT_TRUE(block);
    Lease table(cache_);
    table.Append(group, {&*block, 1});
    cache_.Forget(table);
  }

  const std::vector<TokenId> tokens_ = Tokens(24);
  KvCache cache_;
};

class CacheChunksTest : public CacheGroupsTest {
 protected:
  CacheChunksTest() : CacheGroupsTest(KvWindow::OfChunks(12)) {}
};

TEST_F(CacheGroupsTest, AHitHasWhatTheNextTokensRead) {
  StorePrefix(5);
  const PrefixHit hit = Match(cache_, tokens_);
  EXPECT_EQ(hit.count, 5);
  EXPECT_EQ(hit.parts[0].first, 0);
  EXPECT_EQ(hit.parts[0].blocks.size(), 5u);
  EXPECT_EQ(hit.parts[1].first, 3) << "token 20 reads the tokens from 15 on";
  EXPECT_EQ(hit.parts[1].blocks.size(), 2u);
  EXPECT_EQ(hit.idle, 7);
  Lease table(cache_);
  table.Take(hit);
  EXPECT_EQ(table.size(), 5);
  EXPECT_EQ(table.first(1), 3);
  EXPECT_EQ(table.held(), 7);
  EXPECT_EQ(table.blocks(1)[0], table.blocks(1)[3]);
  ASSERT_TRUE(table.GrowTo(6));
  EXPECT_EQ(table.held(), 9);
  const Lease* all[] = {&table};
  EXPECT_TRUE(cache_.Check(all).ok()) << cache_.Check(all);
}

TEST_F(CacheGroupsTest, APrefixEndsWhereEveryGroupCanResume) {
  StorePrefix(6);
  Evict(1, 4);
  // After blocks 5 and 6, token 20 and 24 would read block 4 of the window.
  EXPECT_EQ(Match(cache_, tokens_).count, 4);
  EXPECT_EQ(Match(cache_, tokens_, 3).count, 3);
  Evict(1, 1);
  EXPECT_EQ(Match(cache_, tokens_).count, 4) << "no later token reads block 1";
  EXPECT_EQ(Match(cache_, tokens_, 3).count, 1) << "tokens 8 and 12 read block 1";
  Evict(0, 2);
  EXPECT_EQ(Match(cache_, tokens_).count, 1);
}

// Chunks of 12 tokens, blocks of 4: after a whole chunk only its last block is needed.
TEST_F(CacheChunksTest, AHitHasTheChunkOfTheNextToken) {
  StorePrefix(6);
  EXPECT_EQ(Match(cache_, tokens_, 5).parts[1].first, 3) << "token 20 reads the tokens from 12 on";
  EXPECT_EQ(Match(cache_, tokens_, 6).parts[1].first, 5) << "token 24 begins a chunk";
  Evict(1, 3);
  EXPECT_EQ(Match(cache_, tokens_).count, 6) << "token 24 does not read block 3";
  EXPECT_EQ(Match(cache_, tokens_, 5).count, 3) << "tokens 16 and 20 read block 3";
}

// A hand-off of 26 tokens brings the blocks that token 26 reads, from block 5 on in the window, but
// for those that are cached.
TEST_F(CacheGroupsTest, AHandOffNeedsWhatTheTokenAfterThePromptReads) {
  StorePrefix(6);
  const auto match = [&](int32_t limit) {
    return cache_.Match(BlockHashes(tokens_, kBlockTokens, {}), tokens_, limit, 26);
  };
  Evict(1, 3);
  EXPECT_EQ(match(99).count, 6);
  EXPECT_EQ(match(99).parts[1].first, 5);
  EXPECT_EQ(match(5).count, 5) << "the window has no block before block 5";
  EXPECT_EQ(match(5).parts[1].first, 5);
  EXPECT_TRUE(match(5).parts[1].blocks.empty());
  Evict(1, 5);
  EXPECT_EQ(match(99).count, 5) << "token 26 reads block 5";
  Lease table(cache_);
  table.Take(match(99));
  table.Skip(1, 5);
  ASSERT_TRUE(table.GrowTo(7));
  EXPECT_EQ(table.held(), 7 + 2);
  EXPECT_EQ(table.first(1), 5);
  EXPECT_EQ(table.blocks(1)[0], table.blocks(1)[5]);
  const Lease* all[] = {&table};
  EXPECT_TRUE(cache_.Check(all).ok()) << cache_.Check(all);
}

TEST_F(CacheGroupsTest, AMissingBlockIsStoredAgain) {
  StorePrefix(6);
  Evict(1, 5);
  EXPECT_EQ(Match(cache_, tokens_).count, 5);
  StorePrefix(6);
  EXPECT_EQ(Match(cache_, tokens_).count, 6);
  EXPECT_EQ(cache_.cached(), 12) << "the other blocks are cached once";
  EXPECT_EQ(cache_.available(), 32);
}

TEST_F(CacheGroupsTest, EventsNameTheWindowsOfABlockApart) {
  StorePrefix(2);
  const auto hashes = BlockHashes(Tokens(8), kBlockTokens, {});
  const auto windows = std::vector{WindowHash(hashes[0]), WindowHash(hashes[1])};
  auto events = cache_.prefix().TakeEvents();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].blocks, (std::vector{hashes[0], windows[0], hashes[1], windows[1]}));
  Evict(1, 0);
  Evict(0, 1);
  events = cache_.prefix().TakeEvents();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, CacheEvent::Kind::kRemoved);
  EXPECT_EQ(events[0].blocks, (std::vector{windows[0], hashes[1]}));
  const Hash128 left = {hashes[0].high ^ windows[1].high, hashes[0].low ^ windows[1].low};
  EXPECT_EQ(cache_.prefix().digest(), left);
  EXPECT_TRUE(cache_.prefix().Check().ok()) << cache_.prefix().Check();
  cache_.prefix().AddSnapshot();
  events = cache_.prefix().TakeEvents();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, CacheEvent::Kind::kCleared);
  EXPECT_EQ(std::set(events[1].blocks.begin(), events[1].blocks.end()),
            (std::set{hashes[0], windows[1]}));
}

// A block is named when all groups of its kind have it.
TEST(PrefixEventTest, GroupsOfOneKindAreNamedTogether) {
  for (const std::vector<KvWindow>& windows :
       {std::vector<KvWindow>{0, 0, 6, KvWindow::OfChunks(6)},
        std::vector<KvWindow>{6, 8},
        std::vector<KvWindow>{0, 0}}) {
    KvCache cache(16, kBlockTokens, true, windows);
    const auto hashes = BlockHashes(Tokens(4), kBlockTokens, {});
    std::vector<Hash128> named = {hashes[0]};
    if (windows.size() == 4) named.push_back(WindowHash(hashes[0]));
    Lease table(cache);
    ASSERT_TRUE(table.GrowTo(1));
    StoreAll(cache, table, Tokens(4), false);
    auto events = cache.prefix().TakeEvents();
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].blocks, named);
    Lease one(cache);
    one.Append(0, table.blocks(0));
    cache.Forget(one);
    events = cache.prefix().TakeEvents();
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].blocks, std::vector{hashes[0]});
    cache.Forget(table);
    events = cache.prefix().TakeEvents();
    EXPECT_EQ(events.size(), windows.size() == 4 ? 1u : 0u);
  }
}

TEST_F(CacheGroupsTest, ALeaseCopiesAndReleasesByGroup) {
  Lease one(cache_);
  const int32_t sizes[] = {4, 2};
  ASSERT_TRUE(one.GrowTo(sizes));
  EXPECT_EQ(one.size(), 2);
  EXPECT_EQ(one.held(), 6);
  one.ReleaseBefore(1, 1);
  EXPECT_EQ(one.held(), 5);
  Lease two = one.Share(2);
  EXPECT_EQ(two.held(), 3);
  std::vector<BlockCopy> copies;
  ASSERT_TRUE(two.MakeExclusive(1, copies));
  EXPECT_EQ(copies.size(), 2u) << "one of each group";
  EXPECT_EQ(two.Entries(1, 2), (std::vector<BlockId>{two.blocks(0)[1], two.blocks(1)[1]}));
  const Lease* all[] = {&one, &two};
  EXPECT_TRUE(cache_.Check(all).ok()) << cache_.Check(all);
  one.Clear();
  two.Clear();
  EXPECT_EQ(cache_.available(), 32);
}

TEST(KvCacheTest, WithoutPrefixCacheNothingIsFound) {
  KvCache cache(4, kBlockTokens, false);
  Lease table(cache);
  ASSERT_TRUE(table.GrowTo(1));
  const auto tokens = Tokens(4);
  EXPECT_FALSE(
      cache.Store(table, 0, BlockHashes(tokens, kBlockTokens, {})[0], kRootEntry, tokens, true));
  EXPECT_EQ(Match(cache, tokens).count, 0);
  EXPECT_EQ(cache.cached(), 0);
}

}  // namespace
}  // namespace baton
