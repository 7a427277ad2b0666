#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/kvcache/kv_window.h"
#include "router/types.h"

namespace baton::router {

// A set of integers in [0, kLimit).
class WorkerSet final {
 public:
  static constexpr int kLimit = 256;

  void Add(int i) { words_[i >> 6] |= uint64_t{1} << (i & 63); }
  void Remove(int i) { words_[i >> 6] &= ~(uint64_t{1} << (i & 63)); }
  bool Has(int i) const { return (words_[i >> 6] >> (i & 63)) & 1; }
  bool empty() const { return (words_[0] | words_[1] | words_[2] | words_[3]) == 0; }
  bool operator==(const WorkerSet&) const = default;
  WorkerSet& operator&=(const WorkerSet& other) {
    for (size_t w = 0; w < words_.size(); ++w) words_[w] &= other.words_[w];
    return *this;
  }
  template <class F>
  void ForEach(F&& f) const {
    for (size_t w = 0; w < words_.size(); ++w) {
      for (uint64_t left = words_[w]; left != 0; left &= left - 1) {
        f(static_cast<int>(w * 64 + std::countr_zero(left)));
      }
    }
  }

 private:
  std::array<uint64_t, kLimit / 64> words_{};
};

// What the router believes the workers' prefix caches contain: block hash → set of workers. Updated
// by the workers' cache events and, until these arrive, by the router's own dispatches. Missing or
// surplus entries cost time on the worker, never correctness. Owned by RouterCore; not thread-safe.
// Never holds more entries than its capacity: the least recently touched entries are evicted.
class PrefixIndex final {
 public:
  explicit PrefixIndex(size_t capacity);

  // Starts or ends tracking a worker. RemoveWorker takes constant time; Sweep removes the worker's
  // bits from the entries later.
  void AddWorker(WorkerSlot worker);
  void RemoveWorker(WorkerSlot worker);

  enum class Feed { kInStep, kNeedsSnapshot };
  // Applies the worker's next event. A gap in the sequence numbers returns kNeedsSnapshot, once;
  // events are still applied. Events with a number that was seen before are ignored.
  Feed Apply(WorkerSlot worker, const CacheEvent& event);
  // Compares the worker's digest, as of its event `sequence`, with the router's own. Returns
  // kNeedsSnapshot when they differ.
  Feed CheckDigest(WorkerSlot worker, Hash128 digest, uint64_t sequence);

  // Notes that the worker will soon have these blocks. The entry expires at `until` unless an event
  // confirms it before.
  void Expect(WorkerSlot worker, std::span<const Hash128> blocks, Time until);

  // Sets depth[slot] to the number of leading blocks of `blocks` that the worker has, for all
  // kMaxWorkers slots. Takes O(distinct depths · log blocks) look-ups, because it assumes that a
  // worker that has a block also has all blocks before it.
  void Match(std::span<const Hash128> blocks, Time now, std::vector<int32_t>& depth) const;

  // For models whose layers have windows of at most `window` beside layers that read all: shortens
  // each depth of Match to a prefix after which the worker also has the windows, which events name
  // by their WindowHash.
  void CutToWindows(std::span<const Hash128> blocks,
                    int32_t block_tokens,
                    KvWindow window,
                    Time now,
                    std::vector<int32_t>& depth) const;

  // Removes expired entries and bits of removed workers from one shard. Called on a timer.
  void Sweep(Time now);

  size_t size() const { return size_; }

 private:
  static constexpr int kShards = 256;
  static constexpr int kColumns = WorkerSet::kLimit;
  static constexpr int16_t kNone = -1;
  static_assert(kColumns >= 2 * kMaxWorkers, "a worker may change its column");

  // Entries name a worker by its column. A column is retired when the worker leaves or clears its
  // cache, and is reused when no entry names it any more.
  struct Expected {
    int16_t column = kNone;
    uint32_t until = 0;  // ticks of 0.1 s
  };
  struct Entry {
    WorkerSet stored;
    std::array<Expected, 2> expected;  // two, because a hand-off puts the blocks on two workers
    uint32_t touched = 0;

    void Forget(int column) {
      for (Expected& e : expected) {
        if (e.column == column) e.column = kNone;
      }
    }
    bool empty() const {
      return stored.empty() && expected[0].column == kNone && expected[1].column == kNone;
    }
  };
  using Shard = absl::flat_hash_map<Hash128, Entry>;
  struct Follower {
    int16_t column = kNone;
    uint64_t sequence = 0;
    Hash128 digest;
    bool asked = false;  // a snapshot was requested and has not begun to arrive
  };

  Shard& ShardOf(const Hash128& hash) { return shards_[hash.high >> 56]; }
  const Shard& ShardOf(const Hash128& hash) const { return shards_[hash.high >> 56]; }
  WorkerSet Holders(const Hash128& hash, Time now) const;
  void Probe(std::span<const Hash128> blocks,
             Time now,
             int32_t low,
             const WorkerSet& at_low,
             int32_t high,
             const WorkerSet& at_high,
             std::vector<int32_t>& depth) const;
  Entry& Touch(const Hash128& hash);
  void MakeRoom(Shard& shard);
  static uint32_t Ticks(Time t);
  void TakeColumn(WorkerSlot worker);
  void Retire(int column);
  void SweepShard(Shard& shard, Time now);

  const size_t shard_capacity_;
  std::vector<Shard> shards_{kShards};
  std::array<Follower, kMaxWorkers> followers_;
  std::array<int16_t, kColumns> worker_of_;  // column → slot, or kNone
  WorkerSet live_;                           // columns in use
  WorkerSet retired_;                        // columns that entries may still name
  std::array<int, kColumns> sweeps_left_{};  // shards to sweep until a column can be reused
  int next_shard_ = 0;
  uint32_t clock_ = 0;
  size_t size_ = 0;
};

}  // namespace baton::router
