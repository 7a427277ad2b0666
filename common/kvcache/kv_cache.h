#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/base/hash.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/kvcache/block_pool.h"
#include "common/kvcache/lease.h"
#include "common/kvcache/prefix_cache.h"

namespace baton {

// Cached blocks that hold the beginning of a token sequence. No lease holds them for this sequence
// yet.
struct PrefixHit {
  std::vector<BlockId> blocks;
  CacheEntryId last = kRootEntry;  // entry of the last block
  int32_t idle = 0;                // blocks without a user, which `available` counts
};

// The blocks of one KV arena: the leases that use them and the prefixes that they hold. A block is
// free, or it belongs to leases. A free block may stay cached until it is taken for other content.
// Belongs to one thread; outlives its leases.
class KvCache final {
 public:
  // When `prefix_cache` is false, Match finds nothing and Store keeps nothing.
  KvCache(int32_t blocks, int32_t block_tokens, bool prefix_cache);

  int32_t block_tokens() const { return block_tokens_; }
  int32_t total() const { return pool_.total(); }
  int32_t available() const { return pool_.available(); }
  int32_t cached() const { return pool_.cached(); }
  int64_t references() const { return pool_.references(); }
  bool is_exclusive(BlockId id) const { return pool_.is_exclusive(id); }
  bool prefix_caching() const { return prefix_caching_; }
  PrefixCache& prefix() { return prefix_; }
  const PrefixCache& prefix() const { return prefix_; }

  int32_t BlocksFor(int64_t tokens) const {
    return static_cast<int32_t>((tokens + block_tokens_ - 1) / block_tokens_);
  }

  // The longest cached prefix of `tokens`, at most `limit` blocks; hashes[i] names block i.
  PrefixHit Match(std::span<const Hash128> hashes,
                  std::span<const TokenId> tokens,
                  int32_t limit) const;

  // Enters the full block at `index` of `table` into the prefix cache as the continuation of
  // `parent`. When another block already holds this content, `table` adopts that block instead, if
  // `adopt` is set and if the number of available blocks does not fall.
  // Returns the entry that now names the content. Nullopt after a hash collision or when the prefix
  // cache is off.
  std::optional<CacheEntryId> Store(Lease& table,
                                    int32_t index,
                                    const Hash128& hash,
                                    CacheEntryId parent,
                                    std::span<const TokenId> tokens,
                                    bool adopt);

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
  std::optional<BlockId> Take();
  void Uncache(BlockId block);
  std::vector<int32_t> CountRefs(std::span<const Lease* const> leases) const;

  const int32_t block_tokens_;
  const bool prefix_caching_;
  BlockPool pool_;
  PrefixCache prefix_;
};

}  // namespace baton
