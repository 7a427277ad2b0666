#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"

namespace baton {

// Counts the users of every block of one arena and decides which free block is reused next: blocks
// without content first, then cached ones, least recently used first. Knows nothing of what blocks
// hold. Belongs to one thread. Misuse is a broken invariant and stops the process.
class BlockPool final {
 public:
  explicit BlockPool(int32_t blocks);

  int32_t total() const { return static_cast<int32_t>(blocks_.size()); }
  // Blocks without a user, cached or not.
  int32_t available() const { return static_cast<int32_t>(plain_.size()) + idle_cached_; }
  int32_t cached() const { return cached_; }
  // Sum of all reference counts.
  int64_t references() const { return references_; }
  int32_t refs(BlockId id) const { return blocks_[id.value()].refs; }
  bool is_cached(BlockId id) const { return blocks_[id.value()].cached; }

  // A block for a new user (its count becomes 1); nothing when none is free. When the block is
  // still marked as cached, the caller forgets its content and calls ClearCached.
  std::optional<BlockId> Take();
  // One more user of a block that has users or is cached.
  void Retain(BlockId id);
  // One user less; the last one's block becomes free.
  void Release(BlockId id);
  // Its content is (no longer) worth keeping once it is free. Only for a block with users.
  void MarkCached(BlockId id);
  void ClearCached(BlockId id);

  // OK when the counts equal `expected_refs` (one a block) and the free lists hold exactly the
  // blocks without users; else Internal naming the first disagreement.
  Status Check(std::span<const int32_t> expected_refs) const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Block {
    int32_t refs = 0;
    bool cached = false;
    uint32_t older = kNone;  // neighbours in the list of idle cached blocks
    uint32_t newer = kNone;
  };

  void LinkNewest(uint32_t index);
  void Unlink(uint32_t index);

  std::vector<Block> blocks_;
  std::vector<uint32_t> plain_;  // free blocks without content, used as a stack
  uint32_t oldest_ = kNone;
  uint32_t newest_ = kNone;
  int32_t idle_cached_ = 0;
  int32_t cached_ = 0;
  int64_t references_ = 0;
};

}  // namespace baton
