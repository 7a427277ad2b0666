#pragma once

#include "common/base/ids.h"
#include "common/kvcache/lease.h"

namespace baton {

// The blocks that the copies of one step read. They are not free before Clear, even when all leases
// have released them: a peer may write a free block at once, before the copy has run. But the last
// lease on such a block may write the block in a later step (Lease::HasRoom), because a device
// executes its steps in order. Belongs to the thread of the cache.
class CopySources final {
 public:
  CopySources() = default;
  ~CopySources() { Clear(); }
  CopySources(const CopySources&) = delete;
  CopySources& operator=(const CopySources&) = delete;

  // Adds a block of `cache` that has users. All blocks of an object belong to one cache.
  void Add(KvCache& cache, BlockId block);
  // All copies have ended.
  void Clear();
  // The added blocks, for a recount of references.
  const Lease& lease() const { return lease_; }

 private:
  KvCache* cache_ = nullptr;
  Lease lease_;
};

}  // namespace baton
