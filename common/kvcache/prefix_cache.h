#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/container/inlined_vector.h>

#include "common/base/hash.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/kvcache/cache_event.h"
#include "common/kvcache/kv_window.h"

namespace baton {

// Identifies one insertion of the content of one block into the prefix cache. Ids are never reused,
// so that a chain of entries is a chain of verified contents. kRootEntry is the parent of every
// first block.
using CacheEntryId = uint64_t;
constexpr CacheEntryId kRootEntry = 0;

// Finds blocks by the chain hash of their content. An entry has a block in some of the cache
// groups: it is entered with the first of them and ends with the last. A hit is verified: the
// tokens and the parent of the entry must equal those of the request. A hash collision is therefore
// a miss and never returns wrong KV. Does not count the users of blocks; BlockPool does. Belongs to
// one thread.
//
// Events name an entry twice: by its hash while it has the blocks of all groups without a window,
// and by its WindowHash while it has those of all groups with one. Where all groups or none have a
// window, they name it by its hash while it has the blocks of all groups. States are a group with a
// window: an entry may have the blocks of the state after its tokens (a checkpoint).
class PrefixCache final {
 public:
  using Blocks = absl::InlinedVector<BlockId, 1>;

  struct Entry {
    int32_t slot = 0;  // valid until an entry is removed
    CacheEntryId id = kRootEntry;
  };

  // `windows` has KvCacheGroup::window of each cache group. Whoever adds a state calls the last one
  // its group.
  PrefixCache(int32_t blocks, int32_t block_tokens, std::span<const KvWindow> windows);

  // The entry of `tokens` (one full block) after `parent`'s content.
  std::optional<Entry> Find(const Hash128& hash,
                            CacheEntryId parent,
                            std::span<const TokenId> tokens) const;
  // The entry with this id and hash.
  std::optional<Entry> FindById(const Hash128& hash, CacheEntryId id) const;
  // Enters `tokens` without a block; Add must follow. Nullopt when another entry has this `hash`.
  std::optional<Entry> Insert(const Hash128& hash,
                              CacheEntryId parent,
                              std::span<const TokenId> tokens);
  // The block of an entry in a group.
  std::optional<BlockId> BlockOf(const Entry& entry, int32_t group) const;
  // Adds the block of a group, which the entry must lack, and which must be in no entry.
  void Add(const Entry& entry, int32_t group, BlockId block);
  // The same for the blocks of a state, whose group is the last one.
  void AddState(const Entry& entry, std::span<const BlockId> blocks);
  // The blocks of the state after an entry's tokens, or none. Valid until an entry changes.
  std::span<const BlockId> StateOf(const Entry& entry) const;
  // Removes `block`, which must be in an entry, and with a block of a state the whole state.
  // Returns the removed blocks.
  Blocks Remove(BlockId block);

  // The number of blocks in entries.
  int32_t size() const { return size_; }
  bool Contains(BlockId block) const { return places_[block.arena_index()].slot != kNone; }
  // XOR of the hashes by which events name the entries.
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
  static constexpr int32_t kNone = -1;
  struct Slot {
    CacheEntryId id = kRootEntry;  // kRootEntry: unused
    CacheEntryId parent = kRootEntry;
    Hash128 hash;
    std::array<int32_t, 2> blocks = {};  // of the groups without and with a window
  };
  // The entry of a block.
  struct Place {
    int32_t slot = kNone;
    int32_t group = 0;
  };

  std::span<TokenId> TokensOf(int32_t slot);
  std::span<const TokenId> TokensOf(int32_t slot) const;
  // The place in blocks_.
  size_t IndexOf(int32_t slot, int32_t group) const {
    return static_cast<size_t>(slot) * groups_ + group;
  }
  int32_t NewSlot();
  CacheEvent& NewEvent(CacheEvent::Kind kind);
  void Record(CacheEvent::Kind kind, const Hash128& hash);
  // The hashes by which events name an entry.
  template <class Visit>
  static void VisitNames(const Slot& slot, const std::array<int32_t, 2>& all, const Visit& visit);
  void CountBlock(int32_t slot, int32_t group, int32_t change);
  int32_t state_group() const { return groups_ - 1; }

  const int32_t block_tokens_;
  const int32_t groups_;
  // By group, 1 if it has a window and others have none; and how many groups have which value.
  std::vector<int32_t> in_window_;
  std::array<int32_t, 2> members_ = {};
  std::vector<Place> places_;  // by block
  // By slot. A slot has block_tokens_ tokens, and a block or kNone for each group; of a state the
  // first block.
  std::vector<Slot> slots_;
  std::vector<TokenId> tokens_;
  std::vector<int32_t> blocks_;
  absl::flat_hash_map<int32_t, std::vector<BlockId>> states_;  // by slot
  std::vector<int32_t> unused_;                                // slots
  absl::flat_hash_map<Hash128, int32_t> by_hash_;
  int32_t size_ = 0;
  CacheEntryId last_id_ = kRootEntry;
  Hash128 digest_;
  std::vector<CacheEvent> events_;
  uint64_t last_sequence_ = 0;
};

}  // namespace baton
