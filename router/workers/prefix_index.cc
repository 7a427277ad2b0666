#include "router/workers/prefix_index.h"

#include <algorithm>
#include <optional>

#include "common/base/check.h"
#include "common/kvcache/block_hash.h"
#include "common/kvcache/layout.h"

namespace baton::router {
namespace {

Hash128 operator^(Hash128 a, Hash128 b) {
  return {a.high ^ b.high, a.low ^ b.low};
}

}  // namespace

PrefixIndex::PrefixIndex(size_t capacity)
    : shard_capacity_(std::max<size_t>(1, capacity / kShards)) {
  worker_of_.fill(kNone);
}

uint32_t PrefixIndex::Ticks(Time t) {
  return static_cast<uint32_t>(t.time_since_epoch() / std::chrono::milliseconds(100));
}

void PrefixIndex::TakeColumn(WorkerSlot worker) {
  const auto free_column = [&] {
    int16_t c = 0;
    while (c < kColumns && (live_.Has(c) || retired_.Has(c))) ++c;
    return c;
  };
  int16_t column = free_column();
  if (column == kColumns) {
    // At least half of the columns are retired and not swept yet: sweep all shards now.
    for (int i = 0; i < kShards; ++i) Sweep(Time{});
    column = free_column();
  }
  BATON_CHECK(column < kColumns, "no column for worker slot {}", worker);
  followers_[worker.value()].column = column;
  worker_of_[column] = static_cast<int16_t>(worker.value());
  live_.Add(column);
}

void PrefixIndex::AddWorker(WorkerSlot worker) {
  Follower& follower = followers_[worker.value()];
  BATON_CHECK(follower.column == kNone, "worker slot {} is followed already", worker);
  follower = {.column = kNone, .sequence = 0, .digest = {}, .asked = true};
  TakeColumn(worker);
}

void PrefixIndex::RemoveWorker(WorkerSlot worker) {
  Follower& follower = followers_[worker.value()];
  if (follower.column == kNone) return;
  Retire(follower.column);
  follower = {};
}

void PrefixIndex::Retire(int column) {
  live_.Remove(column);
  retired_.Add(column);
  worker_of_[column] = kNone;
  sweeps_left_[column] = kShards;
}

PrefixIndex::Feed PrefixIndex::Apply(WorkerSlot worker, const CacheEvent& event) {
  Follower& follower = followers_[worker.value()];
  if (follower.column == kNone || event.sequence <= follower.sequence) return Feed::kInStep;
  const bool gap = event.sequence != follower.sequence + 1;
  follower.sequence = event.sequence;
  if (event.kind == CacheEvent::Kind::kCleared) {
    Retire(follower.column);
    TakeColumn(worker);
    follower.digest = {};
    follower.asked = false;
    return Feed::kInStep;
  }
  for (const Hash128& hash : event.blocks) {
    follower.digest = follower.digest ^ hash;
    if (event.kind == CacheEvent::Kind::kStored) {
      Entry& entry = Touch(hash);
      entry.stored.Add(follower.column);
      entry.Forget(follower.column);
      continue;
    }
    Shard& shard = ShardOf(hash);
    auto it = shard.find(hash);
    if (it == shard.end()) continue;
    Entry& entry = it->second;
    entry.stored.Remove(follower.column);
    entry.Forget(follower.column);
    if (entry.empty()) {
      shard.erase(it);
      --size_;
    }
  }
  if (!gap || follower.asked) return Feed::kInStep;
  follower.asked = true;
  return Feed::kNeedsSnapshot;
}

PrefixIndex::Feed PrefixIndex::CheckDigest(WorkerSlot worker, Hash128 digest, uint64_t sequence) {
  Follower& follower = followers_[worker.value()];
  if (follower.column == kNone || follower.asked || sequence != follower.sequence ||
      digest == follower.digest) {
    return Feed::kInStep;
  }
  follower.asked = true;
  return Feed::kNeedsSnapshot;
}

PrefixIndex::Entry& PrefixIndex::Touch(const Hash128& hash) {
  Shard& shard = ShardOf(hash);
  auto it = shard.find(hash);
  if (it == shard.end()) {
    if (shard.size() >= shard_capacity_) MakeRoom(shard);
    it = shard.emplace(hash, Entry{}).first;
    ++size_;
  }
  it->second.touched = ++clock_;
  return it->second;
}

// Evicts the quarter of the shard's entries that was touched least recently.
void PrefixIndex::MakeRoom(Shard& shard) {
  std::vector<uint32_t> ages;
  ages.reserve(shard.size());
  for (const auto& [hash, entry] : shard) ages.push_back(clock_ - entry.touched);
  const auto cut = ages.begin() + static_cast<std::ptrdiff_t>(ages.size() * 3 / 4);
  std::nth_element(ages.begin(), cut, ages.end());
  const uint32_t limit = cut == ages.end() ? 0 : *cut;
  size_ -= absl::erase_if(shard,
                          [&](const auto& item) { return clock_ - item.second.touched >= limit; });
}

void PrefixIndex::Expect(WorkerSlot worker, std::span<const Hash128> blocks, Time until) {
  const int16_t column = followers_[worker.value()].column;
  if (column == kNone) return;
  for (const Hash128& hash : blocks) {
    Entry& entry = Touch(hash);
    if (entry.stored.Has(column)) continue;
    Expected* place = &entry.expected[entry.expected[0].until > entry.expected[1].until];
    for (Expected& e : entry.expected) {
      if (e.column == column) place = &e;
    }
    *place = {column, Ticks(until)};
  }
}

WorkerSet PrefixIndex::Holders(const Hash128& hash, Time now) const {
  const Shard& shard = ShardOf(hash);
  const auto it = shard.find(hash);
  if (it == shard.end()) return {};
  WorkerSet holders = it->second.stored;
  for (const Expected& e : it->second.expected) {
    if (e.column != kNone && e.until > Ticks(now)) holders.Add(e.column);
  }
  holders &= live_;
  return holders;
}

void PrefixIndex::Match(std::span<const Hash128> blocks,
                        Time now,
                        std::vector<int32_t>& depth) const {
  depth.assign(kMaxWorkers, 0);
  if (blocks.empty()) return;
  const WorkerSet first = Holders(blocks[0], now);
  if (first.empty()) return;
  const auto last = static_cast<int32_t>(blocks.size()) - 1;
  first.ForEach([&](int column) { depth[worker_of_[column]] = 1; });
  if (last == 0) return;
  WorkerSet final = Holders(blocks[last], now);
  final.ForEach([&](int column) { depth[worker_of_[column]] = last + 1; });
  Probe(blocks, now, 0, first, last, final, depth);
}

// Finds the depths between the two probed blocks `low` and `high`. When both have the same holders,
// all blocks between them have these holders, too.
void PrefixIndex::Probe(std::span<const Hash128> blocks,
                        Time now,
                        int32_t low,
                        const WorkerSet& at_low,
                        int32_t high,
                        const WorkerSet& at_high,
                        std::vector<int32_t>& depth) const {
  if (high - low < 2 || at_low == at_high) return;
  const int32_t middle = low + (high - low) / 2;
  const WorkerSet at_middle = Holders(blocks[middle], now);
  at_middle.ForEach([&](int column) {
    int32_t& d = depth[worker_of_[column]];
    d = std::max(d, middle + 1);
  });
  Probe(blocks, now, low, at_low, middle, at_middle, depth);
  if (!at_middle.empty()) Probe(blocks, now, middle, at_middle, high, at_high, depth);
}

// A prefix of n blocks needs the windows of the blocks from FirstBlockKept to n - 1. When block i
// of these lacks its window, no prefix of more than i blocks can be resumed that reads block i. So
// each block is looked up once at most.
void PrefixIndex::CutToWindows(std::span<const Hash128> blocks,
                               int32_t block_tokens,
                               KvWindow window,
                               Time now,
                               std::vector<int32_t>& depth) const {
  std::vector<std::optional<WorkerSet>> holders(blocks.size());
  const auto has_window = [&](int column, int32_t block) {
    if (!holders[block]) holders[block] = Holders(WindowHash(blocks[block]), now);
    return holders[block]->Has(column);
  };
  live_.ForEach([&](int column) {
    int32_t& count = depth[worker_of_[column]];
    int32_t block = count;
    const auto first = [&] {
      return FirstBlockKept(int64_t{count} * block_tokens, window, block_tokens);
    };
    while (count > 0 && block > first()) {
      if (!has_window(column, --block)) count = block;
    }
  });
}

void PrefixIndex::Sweep(Time now) {
  SweepShard(shards_[next_shard_], now);
  next_shard_ = (next_shard_ + 1) % kShards;
  const WorkerSet waiting = retired_;
  waiting.ForEach([&](int column) {
    if (--sweeps_left_[column] == 0) retired_.Remove(column);
  });
}

void PrefixIndex::SweepShard(Shard& shard, Time now) {
  size_ -= absl::erase_if(shard, [&](auto& item) {
    Entry& entry = item.second;
    entry.stored &= live_;
    for (Expected& e : entry.expected) {
      if (e.column != kNone && (e.until <= Ticks(now) || !live_.Has(e.column))) e = {};
    }
    return entry.empty();
  });
}

}  // namespace baton::router
