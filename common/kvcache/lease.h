#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/base/ids.h"
#include "kernels/ops.h"

namespace baton {

class KvCache;

// The right of one holder to an ordered list of blocks: a sequence's block table, or the blocks
// that a peer may still read or write after the request ended. Several leases may share a block; it
// becomes free when the last of them releases it. Movable. The destructor releases all blocks.
// Belongs to the thread of the cache.
class Lease final {
 public:
  Lease() = default;
  explicit Lease(KvCache& cache) : cache_(&cache) {}
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&& other) noexcept;
  ~Lease() { Clear(); }

  // The blocks in order. Entries before first() stand for blocks that were released: they repeat
  // block first(), so that a kernel which reads a whole tile reads memory of this lease.
  std::span<const BlockId> blocks() const { return blocks_; }
  int32_t size() const { return static_cast<int32_t>(blocks_.size()); }
  // The index of the first block that the lease holds.
  int32_t first() const { return first_; }
  // The blocks that the lease holds.
  std::span<const BlockId> held() const { return blocks().subspan(first_); }

  // Adds `count` new blocks at the end. Adds none and returns false when too few are available.
  bool Grow(int32_t count);
  // Adds blocks that have users or are cached.
  void Append(std::span<const BlockId> blocks);
  // A second lease on the first `count` blocks.
  Lease Share(int32_t count) const;
  // Releases the blocks before `index`, which must exist. The indices of all other blocks stay.
  void ReleaseBefore(int32_t index);
  // Releases the block at `index` and takes `block`, which has users or is cached, in its place.
  void Replace(int32_t index, BlockId block);
  // Whether this lease is the only user of the block at `index`, apart from copies of earlier steps
  // that read the block.
  bool IsExclusive(int32_t index) const;
  // Makes this lease exclusive in the block at `index`. When the block has other users, a new block
  // takes its place. The caller must run `copy` before it writes the new block, and keep the source
  // in CopySources until the copy has run. False when no block is available.
  bool MakeExclusive(int32_t index, std::optional<BlockCopy>& copy);
  // Releases all blocks, the last one first, so that the prefix cache keeps the beginning of a
  // prefix longest.
  void Clear();

 private:
  void Put(int32_t index, BlockId block);

  KvCache* cache_ = nullptr;
  std::vector<BlockId> blocks_;
  int32_t first_ = 0;
};

}  // namespace baton
