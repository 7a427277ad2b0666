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

// Cached blocks that hold the beginning of a token sequence. Nobody owns them yet.
struct PrefixHit {
  std::vector<BlockId> blocks;
  CacheEntryId last = kRootEntry;  // entry of the last one
  int32_t idle = 0;                // how many of them have no user, so count as available
};

// The blocks of one KV arena: who uses them and which prefixes they hold. A block is free, or it
// belongs to leases; a free one may still be cached until it is taken for something else. Belongs
// to one thread; outlives its leases.
class KvCache final {
 public:
  // With `prefix_cache` off nothing is ever found or kept.
  KvCache(int32_t blocks, int32_t block_tokens, bool prefix_cache);

  int32_t block_tokens() const { return block_tokens_; }
  int32_t total() const { return pool_.total(); }
  int32_t available() const { return pool_.available(); }
  int32_t cached() const { return pool_.cached(); }
  int64_t references() const { return pool_.references(); }
  int32_t refs(BlockId id) const { return pool_.refs(id); }
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

  // Makes the full block at `index` of `table` findable as the continuation of `parent`. When its
  // content is cached in another block already, `table` changes over to that one if `adopt` and if
  // that leaves no fewer blocks available.
  // Returns the entry that now names the content; nothing after a hash collision or with the cache
  // off.
  std::optional<CacheEntryId> Store(Lease& table,
                                    int32_t index,
                                    const Hash128& hash,
                                    CacheEntryId parent,
                                    std::span<const TokenId> tokens,
                                    bool adopt);

  // Nobody finds the blocks of `table` any more: their numbers are not to be trusted.
  void Forget(const Lease& table);

  // OK when every block's users are exactly the given leases; else Internal naming the first
  // disagreement.
  Status Check(std::span<const Lease* const> leases) const;
  // Blocks that count more users than the given leases explain.
  int32_t CountLeaked(std::span<const Lease* const> leases) const;

 private:
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
