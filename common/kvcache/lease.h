#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/base/ids.h"
#include "kernels/ops.h"

namespace baton {

class KvCache;

// The right of one holder to an ordered list of blocks: a sequence's block table, or what a peer
// may still read or write after its request ended. Several leases may share a block; it becomes
// free when the last one lets go. Movable; lets go on destruction. Belongs to the cache's thread.
class Lease final {
 public:
  Lease() = default;
  explicit Lease(KvCache& cache) : cache_(&cache) {}
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&& other) noexcept;
  ~Lease() { Clear(); }

  std::span<const BlockId> blocks() const { return blocks_; }
  int32_t size() const { return static_cast<int32_t>(blocks_.size()); }

  // Adds `count` new blocks at the end, all or none; false when too few are available.
  bool Grow(int32_t count);
  // Adds blocks that have users or are cached.
  void Append(std::span<const BlockId> blocks);
  // A lease of the first `count` blocks.
  Lease Share(int32_t count) const;
  // Gives the block at `index` up for `block`, which has users or is cached.
  void Replace(int32_t index, BlockId block);
  // Makes the block at `index` this lease's alone. When others use it, a new block takes its place
  // and `copy` says what to copy before it is written. False when no block is available.
  bool MakeExclusive(int32_t index, std::optional<BlockCopy>& copy);
  // Lets go of everything: the last block first, so that the beginning of a prefix stays longest.
  void Clear();

 private:
  KvCache* cache_ = nullptr;
  std::vector<BlockId> blocks_;
};

}  // namespace baton
