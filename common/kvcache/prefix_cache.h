#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "common/base/hash.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/kvcache/cache_event.h"

namespace baton {

// Identifies one insertion of one block into the prefix cache. Ids are never reused, so that a
// chain of entries is a chain of verified contents. kRootEntry is the parent of every first block.
using CacheEntryId = uint64_t;
constexpr CacheEntryId kRootEntry = 0;

// Finds blocks by the chain hash of their content. A hit is verified: the tokens and the parent of
// the entry must equal those of the request. A hash collision is therefore a miss and never returns
// wrong KV. Does not count the users of blocks; BlockPool does. Belongs to one thread.
class PrefixCache final {
 public:
  struct Entry {
    BlockId block;
    CacheEntryId id = kRootEntry;
  };

  PrefixCache(int32_t blocks, int32_t block_tokens);

  // The block that holds `tokens` (one full block) after `parent`'s content, if it is cached.
  std::optional<Entry> Find(const Hash128& hash,
                            CacheEntryId parent,
                            std::span<const TokenId> tokens) const;
  // Enters `block`, which must not be in the cache. Nullopt when another entry has this `hash`.
  std::optional<Entry> Insert(const Hash128& hash,
                              CacheEntryId parent,
                              std::span<const TokenId> tokens,
                              BlockId block);
  // Removes `block`, which must be in the cache.
  void Remove(BlockId block);

  int32_t size() const { return static_cast<int32_t>(by_hash_.size()); }
  bool Contains(BlockId block) const { return slots_[block.value()].id != kRootEntry; }
  // XOR of the hashes of all entries.
  const Hash128& digest() const { return digest_; }
  // The sequence number of the newest event.
  uint64_t last_sequence() const { return last_sequence_; }

  // Returns the events since the last call, in order. Consecutive changes of one kind share an
  // event.
  std::vector<CacheEvent> TakeEvents();
  // Adds a kCleared event and then kStored events for all entries, each with at most
  // kSnapshotBlocks hashes.
  void AddSnapshot();
  static constexpr size_t kSnapshotBlocks = 16384;

  // OK when map, slots and digest agree; else Internal naming the first difference.
  Status Check() const;

 private:
  struct Slot {
    CacheEntryId id = kRootEntry;  // kRootEntry: not in the cache
    CacheEntryId parent = kRootEntry;
    Hash128 hash;
  };

  std::span<TokenId> TokensOf(BlockId block);
  std::span<const TokenId> TokensOf(BlockId block) const;
  CacheEvent& NewEvent(CacheEvent::Kind kind);
  void Record(CacheEvent::Kind kind, const Hash128& hash);

  const int32_t block_tokens_;
  std::vector<Slot> slots_;      // indexed by block
  std::vector<TokenId> tokens_;  // block_tokens_ tokens per block
  absl::flat_hash_map<Hash128, BlockId> by_hash_;
  CacheEntryId last_id_ = kRootEntry;
  Hash128 digest_;
  std::vector<CacheEvent> events_;
  uint64_t last_sequence_ = 0;
};

}  // namespace baton
