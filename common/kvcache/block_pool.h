#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"

namespace baton {

// Counts the users of every block of one arena and chooses the free block to reuse next: first
// blocks without content, then cached blocks, least recently used first. Of what the blocks hold it
// knows only the cache group. Belongs to one thread. Misuse is a broken invariant and stops the
// process.
class BlockPool final {
 public:
  explicit BlockPool(int32_t blocks, size_t groups = 1);

  int32_t total() const { return static_cast<int32_t>(blocks_.size()); }
  // Blocks without a user, cached or not.
  int32_t available() const { return static_cast<int32_t>(plain_.size()) + idle_cached_; }
  int32_t cached() const { return cached_; }
  // Sum of all reference counts.
  int64_t references() const { return references_; }
  // By cache group, how many blocks have users.
  std::span<const int32_t> held() const { return held_; }
  int32_t refs(BlockId id) const { return blocks_[id.arena_index()].refs; }
  // Whether the block has one user, apart from copies that read the block.
  bool is_exclusive(BlockId id) const {
    const Block& block = blocks_[id.arena_index()];
    return block.refs - block.copies == 1;
  }
  bool is_cached(BlockId id) const { return blocks_[id.arena_index()].cached; }

  // Gives a free block to a new user in a cache group; its reference count becomes 1. Nullopt when
  // no block is free. When the block is still marked as cached, the caller must remove its content
  // from the prefix cache and call ClearCached.
  std::optional<BlockId> Take(int32_t group);
  // Adds a user to a block that has users or is cached.
  void Retain(BlockId id);
  // Removes a user. The block becomes free when it has no more users.
  void Release(BlockId id);
  // One of the block's users is a copy from now on that reads the block, until EndCopy.
  void BeginCopy(BlockId id) { ++blocks_[id.arena_index()].copies; }
  void EndCopy(BlockId id) { --blocks_[id.arena_index()].copies; }
  // MarkCached keeps the content of the block when it becomes free; ClearCached undoes this. Only
  // for a block with users.
  void MarkCached(BlockId id);
  void ClearCached(BlockId id);

  // OK when the reference counts equal `expected_refs` (one entry per block) and the free lists
  // hold exactly the blocks without users; else Internal naming the first difference.
  Status Check(std::span<const int32_t> expected_refs) const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Block {
    int32_t refs = 0;
    int32_t copies = 0;  // the part of `refs` that are copies
    bool cached = false;
    uint8_t group = 0;       // the one that took the block last
    uint32_t older = kNone;  // neighbours in the list of cached blocks without users
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
  std::vector<int32_t> held_;
};

}  // namespace baton
