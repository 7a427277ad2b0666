#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <absl/container/inlined_vector.h>

#include "common/base/ids.h"
#include "kernels/ops.h"

namespace baton {

class KvCache;
struct PrefixHit;

// The right of one holder to an ordered list of blocks in each cache group of blocks of tokens, and
// to those of a state: a sequence's block tables and its newest state, or the blocks that a peer
// may still read or write after the request ended. Several leases may share a block; it becomes
// free when the last of them releases it. Movable. The destructor releases all blocks. Belongs to
// the thread of the cache.
class Lease final {
 public:
  Lease() = default;
  explicit Lease(KvCache& cache);
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&& other) noexcept;
  ~Lease() { Clear(); }

  // The blocks of a group in order. Entries before first(group) stand for blocks that are not held:
  // they repeat the first block that is, so that a kernel which reads a whole tile reads memory of
  // this lease.
  std::span<const BlockId> blocks(int32_t group) const { return tables_[group].blocks; }
  int32_t size(int32_t group) const { return static_cast<int32_t>(tables_[group].blocks.size()); }
  // The index of the first block that the lease holds in a group.
  int32_t first(int32_t group) const { return tables_[group].first; }
  // The blocks that the lease holds in a group.
  std::span<const BlockId> held(int32_t group) const {
    return blocks(group).subspan(tables_[group].first);
  }
  int32_t groups() const { return static_cast<int32_t>(tables_.size()); }
  // The size of the shortest table.
  int32_t size() const;
  // The number of blocks that the lease holds in all groups, and of its state.
  int64_t held() const;
  // The blocks of the state, or none.
  std::span<const BlockId> state() const { return state_; }
  // Whether this lease is the only user of its state.
  bool HasOwnState() const;
  // The entries [begin, end) of all tables: for each index, one of each group.
  std::vector<BlockId> Entries(int32_t begin, int32_t end) const;

  // Adds new blocks to each group whose table is shorter than `sizes[group]`. Adds none and returns
  // false when too few are available.
  bool GrowTo(std::span<const int32_t> sizes);
  // The same with one size for all groups.
  bool GrowTo(int32_t size);
  // Takes the blocks of a prefix as the first blocks, but not its state. The lease must be empty.
  void Take(const PrefixHit& prefix);
  // Begins the table of a group with `index`, if it is shorter: no block before is held. The table
  // must hold none.
  void Skip(int32_t group, int32_t index);
  // Adds blocks of one group that have users or are cached.
  void Append(int32_t group, std::span<const BlockId> blocks);
  // Extends each table to `end` by blocks that `other` holds.
  void Append(const Lease& other, int32_t end);
  // A second lease on the first `count` blocks of each group, without the state.
  Lease Share(int32_t count) const;
  // Takes the blocks of a state, which have users or are cached. The lease must have none.
  void TakeState(std::span<const BlockId> blocks);
  // The same with new blocks. False, and nothing is changed, when too few are available.
  bool TakeNewState();
  void SwapState(Lease& other) { state_.swap(other.state_); }
  // Moves the state into a lease of its own.
  Lease SplitState();
  // Releases the blocks of a group before `index`, which must exist. The indices of all other
  // blocks stay.
  void ReleaseBefore(int32_t group, int32_t index);
  // Releases the blocks of each group from `size` on. No group may begin after it.
  void Truncate(int32_t size);
  // Releases the block at `index` and takes `block`, which has users or is cached, in its place.
  void Replace(int32_t group, int32_t index, BlockId block);
  // Whether each table has `size` entries, and this lease is the only user of the blocks at
  // `index`, apart from copies of earlier steps that read them.
  bool HasRoom(int32_t size, int32_t index) const;
  // Makes this lease exclusive in the blocks at `index`. New blocks take the places of those that
  // have other users, and are added to `copies`. The caller must run the copies before it writes
  // the new blocks, and keep the sources in CopySources until the copies have run. False, and
  // nothing is changed, when too few blocks are available.
  bool MakeExclusive(int32_t index, std::vector<BlockCopy>& copies);
  // Releases all blocks, the last ones first, so that the prefix cache keeps the beginning of a
  // prefix longest.
  void Clear();

 private:
  // The block table of one group.
  struct Table {
    std::vector<BlockId> blocks;
    int32_t first = 0;

    void Add(BlockId block);
    void Put(int32_t index, BlockId block);
  };

  template <class SizeOf>
  bool Grow(const SizeOf& size_of);

  KvCache* cache_ = nullptr;
  absl::InlinedVector<Table, 1> tables_;
  std::vector<BlockId> state_;
};

}  // namespace baton
