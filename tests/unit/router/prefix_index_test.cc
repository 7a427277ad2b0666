#include "router/workers/prefix_index.h"

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "common/kvcache/block_hash.h"
#include "common/kvcache/layout.h"

namespace baton::router {
namespace {

constexpr Time kStart{std::chrono::hours(1)};
constexpr WorkerSlot kA{0};
constexpr WorkerSlot kB{1};

std::vector<Hash128> Chain(uint64_t seed, int length) {
  std::mt19937_64 random(seed);
  std::vector<Hash128> chain;
  for (int i = 0; i < length; ++i) chain.push_back({random(), random()});
  return chain;
}

CacheEvent Stored(uint64_t sequence, std::vector<Hash128> blocks) {
  return {sequence, CacheEvent::Kind::kStored, std::move(blocks)};
}
CacheEvent Removed(uint64_t sequence, std::vector<Hash128> blocks) {
  return {sequence, CacheEvent::Kind::kRemoved, std::move(blocks)};
}
CacheEvent Cleared(uint64_t sequence) {
  return {sequence, CacheEvent::Kind::kCleared, {}};
}

std::vector<Hash128> First(const std::vector<Hash128>& chain, int count) {
  return {chain.begin(), chain.begin() + count};
}

class PrefixIndexTest : public testing::Test {
 protected:
  PrefixIndexTest() {
    index_.AddWorker(kA);
    index_.AddWorker(kB);
    index_.Apply(kA, Cleared(1));
    index_.Apply(kB, Cleared(1));
  }
  int Depth(WorkerSlot slot, const std::vector<Hash128>& chain, Time now = kStart) {
    index_.Match(chain, now, depth_);
    return depth_[slot.value()];
  }

  PrefixIndex index_{100'000};
  std::vector<int32_t> depth_;
};

TEST_F(PrefixIndexTest, FindsTheLongestPrefixOfEachWorker) {
  const auto chain = Chain(1, 100);
  for (int a = 0; a <= 100; a += 7) {
    for (int b = 0; b <= 100; b += 11) {
      PrefixIndex index(100'000);
      index.AddWorker(kA);
      index.AddWorker(kB);
      index.Apply(kA, Stored(1, First(chain, a)));
      index.Apply(kB, Stored(1, First(chain, b)));
      index.Match(chain, kStart, depth_);
      ASSERT_EQ(depth_[0], a);
      ASSERT_EQ(depth_[1], b);
      ASSERT_EQ(depth_[2], 0);
    }
  }
}

TEST_F(PrefixIndexTest, RemovedBlocksShortenThePrefix) {
  const auto chain = Chain(2, 10);
  index_.Apply(kA, Stored(2, chain));
  index_.Apply(kA, Removed(3, {chain[9], chain[8], chain[7]}));
  EXPECT_EQ(Depth(kA, chain), 7);
  EXPECT_EQ(index_.size(), 7u);
}

TEST_F(PrefixIndexTest, AGapAsksForOneSnapshotWhichMendsIt) {
  const auto chain = Chain(3, 10);
  EXPECT_EQ(index_.Apply(kA, Stored(2, First(chain, 2))), PrefixIndex::Feed::kInStep);
  EXPECT_EQ(index_.Apply(kA, Stored(4, First(chain, 4))), PrefixIndex::Feed::kNeedsSnapshot);
  EXPECT_EQ(index_.Apply(kA, Stored(6, First(chain, 5))), PrefixIndex::Feed::kInStep);
  EXPECT_EQ(index_.Apply(kA, Cleared(7)), PrefixIndex::Feed::kInStep);
  EXPECT_EQ(Depth(kA, chain), 0);
  index_.Apply(kA, Stored(8, First(chain, 3)));
  EXPECT_EQ(Depth(kA, chain), 3);
  EXPECT_EQ(index_.Apply(kA, Stored(10, chain)), PrefixIndex::Feed::kNeedsSnapshot);
}

TEST_F(PrefixIndexTest, EventsThatWereSeenAreIgnored) {
  const auto chain = Chain(4, 4);
  index_.Apply(kA, Stored(2, chain));
  index_.Apply(kA, Removed(3, {chain[3]}));
  index_.Apply(kA, Stored(2, chain));
  EXPECT_EQ(Depth(kA, chain), 3);
}

TEST_F(PrefixIndexTest, AnUnequalDigestAsksForASnapshot) {
  const auto chain = Chain(5, 2);
  index_.Apply(kA, Stored(2, chain));
  const Hash128 both{chain[0].high ^ chain[1].high, chain[0].low ^ chain[1].low};
  EXPECT_EQ(index_.CheckDigest(kA, both, 2), PrefixIndex::Feed::kInStep);
  EXPECT_EQ(index_.CheckDigest(kA, chain[0], 1), PrefixIndex::Feed::kInStep) << "an old digest";
  EXPECT_EQ(index_.CheckDigest(kA, chain[0], 2), PrefixIndex::Feed::kNeedsSnapshot);
  EXPECT_EQ(index_.CheckDigest(kA, chain[0], 2), PrefixIndex::Feed::kInStep) << "asked already";
  index_.Apply(kA, Removed(3, {chain[1]}));
  index_.Apply(kA, Cleared(4));
  index_.Apply(kA, Stored(5, {chain[0]}));
  EXPECT_EQ(index_.CheckDigest(kA, chain[0], 5), PrefixIndex::Feed::kInStep);
}

TEST_F(PrefixIndexTest, ExpectedBlocksCountUntilTheyExpire) {
  const auto chain = Chain(6, 8);
  index_.Expect(kA, chain, kStart + std::chrono::seconds(10));
  index_.Expect(kB, chain, kStart + std::chrono::seconds(10));
  EXPECT_EQ(Depth(kA, chain), 8);
  EXPECT_EQ(Depth(kB, chain), 8);
  index_.Apply(kB, Stored(2, First(chain, 4)));
  const Time later = kStart + std::chrono::seconds(11);
  EXPECT_EQ(Depth(kA, chain, later), 0);
  EXPECT_EQ(Depth(kB, chain, later), 4);
  for (int i = 0; i < 256; ++i) index_.Sweep(later);
  EXPECT_EQ(index_.size(), 4u);
}

TEST_F(PrefixIndexTest, ARemovedWorkerIsForgottenAtOnceAndItsSlotCanBeTakenAgain) {
  const auto chain = Chain(7, 8);
  index_.Apply(kA, Stored(2, chain));
  index_.RemoveWorker(kA);
  EXPECT_EQ(Depth(kA, chain), 0);
  index_.AddWorker(kA);
  EXPECT_EQ(Depth(kA, chain), 0);
  index_.Apply(kA, Cleared(1));
  index_.Apply(kA, Stored(2, First(chain, 2)));
  EXPECT_EQ(Depth(kA, chain), 2);
  for (int i = 0; i < 256; ++i) index_.Sweep(kStart);
  EXPECT_EQ(index_.size(), 2u);
}

TEST_F(PrefixIndexTest, ColumnsDoNotRunOut) {
  const auto chain = Chain(8, 3);
  uint64_t sequence = 1;
  for (int i = 0; i < 2000; ++i) {
    index_.Apply(kA, Cleared(++sequence));
    index_.Apply(kA, Stored(++sequence, chain));
    ASSERT_EQ(Depth(kA, chain), 3);
    ASSERT_EQ(Depth(kB, chain), 0);
  }
}

TEST_F(PrefixIndexTest, NeverHoldsMoreThanItsCapacity) {
  PrefixIndex index(2560);
  index.AddWorker(kA);
  uint64_t sequence = 0;
  for (int i = 0; i < 200; ++i) {
    index.Apply(kA, Stored(++sequence, Chain(100 + i, 100)));
    ASSERT_LE(index.size(), 2560u);
  }
  EXPECT_GT(index.size(), 1000u);
  index.Match(Chain(299, 100), kStart, depth_);
  EXPECT_GT(depth_[0], 90) << "the newest blocks stay";
}

// Compares the index with a plain model under random events of workers that evict blocks from the
// end of a prompt.
TEST(PrefixIndexRandomTest, EqualsAPlainSet) {
  std::mt19937_64 random(42);
  PrefixIndex index(1 << 20);
  constexpr int kWorkers = 20;
  const std::vector<std::vector<Hash128>> chains = {Chain(1, 60), Chain(2, 60), Chain(3, 60)};
  std::vector<std::vector<int>> has(kWorkers, std::vector<int>(chains.size(), 0));
  std::vector<uint64_t> sequence(kWorkers, 0);
  for (int w = 0; w < kWorkers; ++w) index.AddWorker(WorkerSlot(w));
  std::vector<int32_t> depth;
  for (int step = 0; step < 5000; ++step) {
    const int w = random() % kWorkers;
    const size_t c = random() % chains.size();
    const int to = random() % 61;
    int& now = has[w][c];
    const auto at = [&](int i) { return chains[c].begin() + i; };
    if (random() % 50 == 0) {
      index.Apply(WorkerSlot(w), Cleared(++sequence[w]));
      has[w].assign(chains.size(), 0);
    } else if (to > now) {
      index.Apply(WorkerSlot(w), Stored(++sequence[w], {at(now), at(to)}));
      now = to;
    } else {
      index.Apply(WorkerSlot(w), Removed(++sequence[w], {at(to), at(now)}));
      now = to;
    }
    if (step % 3 == 0) index.Sweep(kStart);
    index.Match(chains[c], kStart, depth);
    for (int i = 0; i < kWorkers; ++i) ASSERT_EQ(depth[i], has[i][c]) << "step " << step;
  }
}

// The longest prefix of at most `depth` blocks after which all blocks that the next token reads
// have their windows.
int32_t Resumable(const std::vector<bool>& has_window, int32_t depth, KvWindow window) {
  for (int32_t count = depth; count > 0; --count) {
    const int32_t first = FirstBlockKept(int64_t{count} * 4, window, 4);
    const auto begin = has_window.begin();
    if (std::all_of(begin + first, begin + count, [](bool has) { return has; })) return count;
  }
  return 0;
}

TEST_F(PrefixIndexTest, APrefixEndsWhereTheWindowsAreCached) {
  std::mt19937_64 random(7);
  std::set<int32_t> depths;
  for (uint64_t round = 1; round <= 300; ++round) {
    PrefixIndex index(100'000);
    const auto chain = Chain(round, 40);
    KvWindow window = static_cast<int32_t>(1 + random() % 30);
    window.chunked = round % 3 == 0;
    std::vector<int32_t> expected(2);
    for (const WorkerSlot slot : {kA, kB}) {
      const auto depth = static_cast<int>(random() % 41);
      std::vector<Hash128> names = First(chain, depth);
      std::vector<bool> has_window;
      const uint64_t rarity = 1 + random() % 12;
      for (int i = 0; i < 40; ++i) {
        has_window.push_back(i < depth && random() % rarity != 0);
        if (has_window.back()) names.push_back(WindowHash(chain[i]));
      }
      index.AddWorker(slot);
      index.Apply(slot, Cleared(1));
      index.Apply(slot, Stored(2, names));
      expected[slot.value()] = Resumable(has_window, depth, window);
      depths.insert(expected[slot.value()]);
    }
    index.Match(chain, kStart, depth_);
    index.CutToWindows(chain, 4, window, kStart, depth_);
    ASSERT_EQ(depth_[kA.value()], expected[0]) << "round " << round;
    ASSERT_EQ(depth_[kB.value()], expected[1]) << "round " << round;
  }
  EXPECT_GT(depths.size(), 20u);
}

}  // namespace
}  // namespace baton::router
