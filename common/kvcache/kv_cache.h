#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <absl/container/inlined_vector.h>

#include "common/base/hash.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/kvcache/block_pool.h"
#include "common/kvcache/layout.h"
#include "common/kvcache/lease.h"
#include "common/kvcache/prefix_cache.h"

namespace baton {

// Cached blocks that hold the beginning of a token sequence: in each cache group those that later
// tokens read. No lease holds them for this sequence yet.
struct PrefixHit {
  // The blocks of one group: those with the indices from `first` to `count` - 1.
  struct Part {
    int32_t first = 0;
    std::vector<BlockId> blocks;
  };
  int32_t count = 0;               // blocks of tokens
  CacheEntryId last = kRootEntry;  // entry of the last block
  int32_t idle = 0;                // blocks without a user, which `available` counts
  // The state after the prefix, if layers have states and the next token to compute needs it.
  std::vector<BlockId> state;
  absl::InlinedVector<Part, 1> parts;  // by group; empty when `count` is 0
};

// The blocks of one KV arena: the leases that use them and the prefixes that they hold. A block is
// free, or it belongs to leases. A free block may still stay cached until it is taken for other
// content. Belongs to one thread; outlives its leases.
class KvCache final {
 public:
  // `windows` has KvCacheGroup::window of each cache group. When `prefix_cache` is false, Match
  // finds nothing and Store keeps nothing. `state_blocks` is StateBlocks: if it is not 0, the last
  // group is that of states.
  KvCache(int32_t blocks,
          int32_t block_tokens,
          bool prefix_cache,
          std::vector<KvWindow> windows = {0},
          int32_t state_blocks = 0);

  // The groups of blocks of tokens.
  int32_t groups() const {
    return static_cast<int32_t>(windows_.size()) - (state_blocks_ > 0 ? 1 : 0);
  }
  // KvCacheGroup::window of these groups.
  std::span<const KvWindow> windows() const { return std::span(windows_).first(groups()); }
  // The arena blocks of a state; 0: no layer has one.
  int32_t state_blocks() const { return state_blocks_; }
  int32_t block_tokens() const { return block_tokens_; }
  int32_t total() const { return pool_.total(); }
  int32_t available() const { return pool_.available(); }
  int32_t cached() const { return pool_.cached(); }
  int64_t references() const { return pool_.references(); }
  // By cache group, that of states too: how many blocks have users.
  std::span<const int32_t> held() const { return pool_.held(); }
  bool is_exclusive(BlockId id) const { return pool_.is_exclusive(id); }
  bool prefix_caching() const { return prefix_caching_; }
  PrefixCache& prefix() { return prefix_; }
  const PrefixCache& prefix() const { return prefix_; }

  int32_t BlocksFor(int64_t tokens) const {
    return static_cast<int32_t>((tokens + block_tokens_ - 1) / block_tokens_);
  }

  // The longest cached prefix of `tokens`, at most `limit` blocks; hashes[i] names block i. The hit
  // has what the token after the prefix reads. If `computed` is set, it has what the token after
  // `computed` tokens reads of the prefix, because the KV between the two comes from elsewhere.
  PrefixHit Match(std::span<const Hash128> hashes,
                  std::span<const TokenId> tokens,
                  int32_t limit,
                  std::optional<int32_t> computed = std::nullopt) const;

  // The first block of a group that a sequence of `tokens` computed tokens keeps.
  int32_t FirstKept(int32_t group, int64_t tokens) const {
    return FirstBlockKept(tokens, windows_[group], block_tokens_);
  }

  // Enters the full blocks that `table` holds at `index` into the prefix cache as the continuation
  // of `parent`. When another block of the group already holds this content, `table` adopts that
  // block instead, if `adopt` is set and if the number of available blocks does not fall.
  // Returns the entry that now names the content. Nullopt after a hash collision or when the prefix
  // cache is off.
  std::optional<CacheEntryId> Store(Lease& table,
                                    int32_t index,
                                    const Hash128& hash,
                                    CacheEntryId parent,
                                    std::span<const TokenId> tokens,
                                    bool adopt);

  // Enters the state of `table` into the prefix cache as that after the tokens of `entry`, so that
  // it must not be written any more. Does nothing if the entry has one, or is not that of `hash`
  // any more.
  void StoreState(const Lease& table, const Hash128& hash, CacheEntryId entry);
  // Whether the entry exists and has no state.
  bool LacksState(const Hash128& hash, CacheEntryId entry) const;
  bool IsCached(std::span<const BlockId> state) const { return pool_.is_cached(state.front()); }
  // Removes the state of `table` from the prefix cache, so that it may be written.
  void ForgetState(const Lease& table);

  // Removes the blocks of `table` from the prefix cache, because their KV cannot be trusted.
  void Forget(const Lease& table);

  // Removes all blocks from the prefix cache. Leases keep their blocks.
  void ForgetAll();

  // OK when the reference count of every block equals its references from `leases`; else Internal
  // naming the first difference.
  Status Check(std::span<const Lease* const> leases) const;
  // The number of blocks with a higher reference count than `leases` explain.
  int32_t CountLeaked(std::span<const Lease* const> leases) const;

 private:
  friend class CopySources;
  friend class Lease;
  std::optional<BlockId> Take(int32_t group);
  void Uncache(BlockId block);
  std::vector<int32_t> CountRefs(std::span<const Lease* const> leases) const;

  const int32_t block_tokens_;
  const bool prefix_caching_;
  const std::vector<KvWindow> windows_;
  const int32_t state_blocks_;
  BlockPool pool_;
  PrefixCache prefix_;
};

}  // namespace baton
