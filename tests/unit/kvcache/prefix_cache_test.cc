#include "common/kvcache/prefix_cache.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

const std::vector<KvWindow> kOneGroup = {0};

const Hash128 kA = {1, 10};
const Hash128 kB = {2, 20};
const std::vector<TokenId> kFour = {1, 2, 3, 4};
const std::vector<TokenId> kOther = {1, 2, 3, 5};

std::optional<PrefixCache::Entry> Enter(PrefixCache& cache,
                                        const Hash128& hash,
                                        CacheEntryId parent,
                                        const std::vector<TokenId>& tokens,
                                        BlockId block) {
  const auto entry = cache.Insert(hash, parent, tokens);
  if (entry) cache.Add(*entry, 0, block);
  return entry;
}

TEST(PrefixCacheTest, FindsWhatWasEntered) {
  PrefixCache cache(8, 4, kOneGroup);
  EXPECT_FALSE(cache.Find(kA, kRootEntry, kFour));
  const auto entry = Enter(cache, kA, kRootEntry, kFour, BlockId(3));
  ASSERT_TRUE(entry);
  const auto found = cache.Find(kA, kRootEntry, kFour);
  ASSERT_TRUE(found);
  EXPECT_EQ(cache.BlockOf(*found, 0), BlockId(3));
  EXPECT_EQ(found->id, entry->id);
  cache.Remove(BlockId(3));
  EXPECT_FALSE(cache.Find(kA, kRootEntry, kFour));
  EXPECT_TRUE(cache.Check().ok());
}

TEST(PrefixCacheTest, CollisionIsAMiss) {
  PrefixCache cache(8, 4, kOneGroup);
  const auto first = Enter(cache, kA, kRootEntry, kFour, BlockId(0));
  EXPECT_FALSE(cache.Find(kA, kRootEntry, kOther)) << "same hash, other tokens";
  EXPECT_FALSE(cache.Find(kA, first->id, kFour)) << "same hash and tokens, other parent";
  EXPECT_FALSE(Enter(cache, kA, kRootEntry, kOther, BlockId(1))) << "the first one stays";
  EXPECT_TRUE(cache.Find(kA, kRootEntry, kFour));
  EXPECT_EQ(cache.size(), 1);
}

TEST(PrefixCacheTest, ChildOfAnEntryThatWentIsNotFoundUnderItsSuccessor) {
  PrefixCache cache(8, 4, kOneGroup);
  const auto parent = Enter(cache, kA, kRootEntry, kFour, BlockId(0));
  ASSERT_TRUE(Enter(cache, kB, parent->id, kFour, BlockId(1)));
  cache.Remove(BlockId(0));
  const auto successor = Enter(cache, kA, kRootEntry, kOther, BlockId(2));
  EXPECT_FALSE(cache.Find(kB, successor->id, kFour));
}

TEST(PrefixCacheTest, EventsTellEverythingInOrder) {
  PrefixCache cache(8, 4, kOneGroup);
  const auto parent = Enter(cache, kA, kRootEntry, kFour, BlockId(0));
  Enter(cache, kB, parent->id, kFour, BlockId(1));
  cache.Remove(BlockId(1));
  auto events = cache.TakeEvents();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, CacheEvent::Kind::kStored);
  EXPECT_EQ(events[0].blocks, (std::vector<Hash128>{kA, kB}));
  EXPECT_EQ(events[0].sequence, 1u);
  EXPECT_EQ(events[1].kind, CacheEvent::Kind::kRemoved);
  EXPECT_EQ(events[1].blocks, std::vector<Hash128>{kB});
  EXPECT_EQ(events[1].sequence, 2u);
  EXPECT_TRUE(cache.TakeEvents().empty());

  cache.AddSnapshot();
  events = cache.TakeEvents();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, CacheEvent::Kind::kCleared);
  EXPECT_EQ(events[0].sequence, 3u);
  EXPECT_EQ(events[1].blocks, std::vector<Hash128>{kA});
  EXPECT_EQ(cache.last_sequence(), 4u);
}

TEST(PrefixCacheTest, DigestIsTheXorOfWhatIsInside) {
  PrefixCache cache(8, 4, kOneGroup);
  const auto parent = Enter(cache, kA, kRootEntry, kFour, BlockId(0));
  Enter(cache, kB, parent->id, kFour, BlockId(1));
  EXPECT_EQ(cache.digest(), (Hash128{3, 30}));
  cache.Remove(BlockId(0));
  EXPECT_EQ(cache.digest(), kB);
}

TEST(PrefixCacheTest, LongSnapshotComesInParts) {
  const int32_t blocks = static_cast<int32_t>(PrefixCache::kSnapshotBlocks) + 5;
  PrefixCache cache(blocks, 1, kOneGroup);
  for (int32_t i = 0; i < blocks; ++i) {
    const std::vector<TokenId> token = {i};
    Enter(cache, {7, static_cast<uint64_t>(i)}, kRootEntry, token, BlockId(i));
  }
  cache.TakeEvents();
  cache.AddSnapshot();
  const auto events = cache.TakeEvents();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[1].blocks.size() + events[2].blocks.size(), static_cast<size_t>(blocks));
}

}  // namespace
}  // namespace baton
