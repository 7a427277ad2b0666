#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/kvcache/block_hash.h"
#include "common/kvcache/kv_cache.h"
#include "tests/unit/kvcache/stored_tokens.h"

// A prefix cache whose layout has a group of states.
namespace baton {
namespace {

// A group that keeps all tokens, and states of three blocks.
class StateCacheTest : public testing::Test {
 protected:
  static constexpr int32_t kStateBlocks = 3;

  // Stores a prefix of `count` blocks, and the state after it. Returns the entry of the last block.
  CacheEntryId StorePrefix(int32_t count) {
    Lease table(cache_);
    EXPECT_TRUE(table.GrowTo(count) && table.TakeNewState());
    EXPECT_TRUE(table.HasOwnState());
    StoreAll(cache_, table, Tokens(count * kBlockTokens), true);
    const auto hashes = BlockHashes(tokens_, kBlockTokens, {});
    std::optional<PrefixCache::Entry> entry = PrefixCache::Entry{};
    for (size_t i = 0; std::cmp_less(i, count); ++i) {
      entry = cache_.prefix().Find(
          hashes[i], entry->id, std::span(tokens_).subspan(i * kBlockTokens, kBlockTokens));
    }
    cache_.StoreState(table, hashes[count - 1], entry->id);
    const Lease* all[] = {&table};
    EXPECT_TRUE(cache_.Check(all).ok()) << cache_.Check(all);
    return entry->id;
  }
  void ExpectSound() { EXPECT_TRUE(cache_.Check({}).ok()) << cache_.Check({}); }

  const std::vector<TokenId> tokens_ = Tokens(24);
  KvCache cache_{16, kBlockTokens, true, {0, kStateWindow}, kStateBlocks};
};

TEST_F(StateCacheTest, APrefixResumesAtAState) {
  StorePrefix(2);
  StorePrefix(5);
  EXPECT_EQ(cache_.groups(), 1);
  PrefixHit hit = Match(cache_, tokens_);
  EXPECT_EQ(hit.count, 5);
  EXPECT_EQ(hit.state.size(), static_cast<size_t>(kStateBlocks));
  EXPECT_EQ(hit.idle, 5 + kStateBlocks);
  hit = Match(cache_, tokens_, 4);
  EXPECT_EQ(hit.count, 2);
  EXPECT_EQ(hit.idle, 2 + kStateBlocks);
  EXPECT_EQ(Match(cache_, tokens_, 1).count, 0);
  Lease table(cache_);
  table.Take(hit);
  table.TakeState(hit.state);
  EXPECT_EQ(table.held(), 2 + kStateBlocks);
  EXPECT_TRUE(cache_.IsCached(table.state()));
  const Lease other = table.SplitState();
  EXPECT_TRUE(table.state().empty());
  const Lease* all[] = {&table, &other};
  EXPECT_TRUE(cache_.Check(all).ok()) << cache_.Check(all);
}

// The KV between the prefix and token 24 comes from elsewhere, and the state with it.
TEST_F(StateCacheTest, AHandOffNeedsTheStateOfAWholePromptAlone) {
  StorePrefix(5);
  const auto match = [&](int32_t computed) {
    return cache_.Match(
        BlockHashes(tokens_, kBlockTokens, {}), tokens_, computed / kBlockTokens, computed);
  };
  EXPECT_EQ(match(22).count, 5);
  EXPECT_TRUE(match(22).state.empty());
  EXPECT_EQ(match(20).count, 5);
  EXPECT_EQ(match(20).state.size(), static_cast<size_t>(kStateBlocks));
  EXPECT_EQ(match(16).count, 3) << "the state after 16 tokens comes from elsewhere, too";
}

TEST_F(StateCacheTest, CountsTheBlocksThatEachGroupHolds) {
  const auto held = [&] {
    return std::vector<int32_t>(cache_.held().begin(), cache_.held().end());
  };
  StorePrefix(5);
  EXPECT_EQ(held(), (std::vector<int32_t>{0, 0})) << "cached blocks are free";
  const PrefixHit hit = Match(cache_, tokens_);
  Lease table(cache_);
  table.Take(hit);
  table.TakeState(hit.state);
  EXPECT_EQ(held(), (std::vector<int32_t>{5, kStateBlocks}));
  Lease other = table.Share(5);
  ASSERT_TRUE(other.TakeNewState());
  EXPECT_EQ(held(), (std::vector<int32_t>{5, 2 * kStateBlocks})) << "a shared block counts once";
  std::vector<BlockCopy> copies;
  ASSERT_TRUE(other.MakeExclusive(4, copies));
  EXPECT_EQ(held(), (std::vector<int32_t>{6, 2 * kStateBlocks}));
  table.Clear();
  EXPECT_EQ(held(), (std::vector<int32_t>{5, kStateBlocks}));
}

// A state is no use without one of its blocks.
TEST_F(StateCacheTest, AStateIsTakenForOtherContentAsAWhole) {
  StorePrefix(2);
  StorePrefix(5);
  EXPECT_EQ(cache_.cached(), 5 + 2 * kStateBlocks);
  Lease taker(cache_);
  ASSERT_TRUE(taker.GrowTo(16 - cache_.cached() + 1));
  EXPECT_EQ(cache_.cached(), 5 + kStateBlocks);
  taker.Clear();
  ExpectSound();
  EXPECT_EQ(Match(cache_, tokens_).count, 5);
  EXPECT_EQ(Match(cache_, tokens_, 4).count, 0);
  cache_.ForgetAll();
  EXPECT_EQ(cache_.cached(), 0);
  EXPECT_EQ(cache_.available(), 16);
  ExpectSound();
}

TEST_F(StateCacheTest, AnEntryHasOneState) {
  const CacheEntryId entry = StorePrefix(2);
  const Hash128 hash = BlockHashes(tokens_, kBlockTokens, {})[1];
  EXPECT_FALSE(cache_.LacksState(hash, entry));
  EXPECT_FALSE(cache_.LacksState(hash, entry + 1)) << "there is no such entry";
  StorePrefix(2);
  EXPECT_EQ(cache_.cached(), 2 + kStateBlocks);
  ExpectSound();
}

// Routers learn which prefixes can be resumed as they do of windows.
TEST_F(StateCacheTest, EventsNameStatesAsWindows) {
  StorePrefix(2);
  const auto hashes = BlockHashes(tokens_, kBlockTokens, {});
  std::vector<Hash128> stored;
  for (const CacheEvent& event : cache_.prefix().TakeEvents()) {
    EXPECT_EQ(event.kind, CacheEvent::Kind::kStored);
    stored.insert(stored.end(), event.blocks.begin(), event.blocks.end());
  }
  EXPECT_EQ(stored, (std::vector<Hash128>{hashes[0], hashes[1], WindowHash(hashes[1])}));
}

}  // namespace
}  // namespace baton
