#include "common/kvcache/kv_cache.h"

#include <algorithm>

namespace baton {

KvCache::KvCache(int32_t blocks, int32_t block_tokens, bool prefix_cache)
    : block_tokens_(block_tokens),
      prefix_caching_(prefix_cache),
      pool_(blocks),
      prefix_(prefix_cache ? blocks : 0, block_tokens) {}

PrefixHit KvCache::Match(std::span<const Hash128> hashes,
                         std::span<const TokenId> tokens,
                         int32_t limit) const {
  PrefixHit hit;
  if (!prefix_caching_) return hit;
  const size_t most = std::min(hashes.size(), static_cast<size_t>(std::max(limit, 0)));
  for (size_t i = 0; i < most; ++i) {
    const auto entry =
        prefix_.Find(hashes[i], hit.last, tokens.subspan(i * block_tokens_, block_tokens_));
    if (!entry) break;
    hit.blocks.push_back(entry->block);
    hit.last = entry->id;
    hit.idle += pool_.refs(entry->block) == 0;
  }
  return hit;
}

std::optional<CacheEntryId> KvCache::Store(Lease& table,
                                           int32_t index,
                                           const Hash128& hash,
                                           CacheEntryId parent,
                                           std::span<const TokenId> tokens,
                                           bool adopt) {
  if (!prefix_caching_) return std::nullopt;
  const BlockId block = table.blocks()[index];
  if (const auto known = prefix_.Find(hash, parent, tokens)) {
    // Must not use up an available block, because it may be promised to another sequence.
    const bool free_of_cost = pool_.refs(known->block) > 0 || pool_.refs(block) == 1;
    if (adopt && known->block != block && free_of_cost) table.Replace(index, known->block);
    return known->id;
  }
  if (pool_.is_cached(block)) return std::nullopt;
  const auto entry = prefix_.Insert(hash, parent, tokens, block);
  if (!entry) return std::nullopt;
  pool_.MarkCached(block);
  return entry->id;
}

void KvCache::Forget(const Lease& table) {
  for (const BlockId block : table.held()) Uncache(block);
}

void KvCache::ForgetAll() {
  for (int32_t i = 0; i < pool_.total(); ++i) {
    const BlockId block(i);
    if (!pool_.is_cached(block)) continue;
    // Only a block with a user can lose its content; this moves a free one to the empty blocks.
    pool_.Retain(block);
    Uncache(block);
    pool_.Release(block);
  }
}

std::optional<BlockId> KvCache::Take() {
  const auto block = pool_.Take();
  if (block) Uncache(*block);
  return block;
}

void KvCache::Uncache(BlockId block) {
  if (!pool_.is_cached(block)) return;
  prefix_.Remove(block);
  pool_.ClearCached(block);
}

std::vector<int32_t> KvCache::CountRefs(std::span<const Lease* const> leases) const {
  std::vector<int32_t> refs(pool_.total());
  for (const Lease* lease : leases) {
    for (BlockId block : lease->held()) ++refs[block.value()];
  }
  return refs;
}

Status KvCache::Check(std::span<const Lease* const> leases) const {
  BATON_RETURN_IF_ERROR(pool_.Check(CountRefs(leases)));
  BATON_RETURN_IF_ERROR(prefix_.Check());
  if (prefix_.size() != pool_.cached()) {
    return MakeStatus(StatusCode::kInternal,
                      "{} blocks are marked cached; the prefix cache has {}",
                      pool_.cached(),
                      prefix_.size());
  }
  return OkStatus();
}

int32_t KvCache::CountLeaked(std::span<const Lease* const> leases) const {
  const std::vector<int32_t> refs = CountRefs(leases);
  int32_t leaked = 0;
  for (int32_t i = 0; i < pool_.total(); ++i) {
    leaked += pool_.refs(BlockId(static_cast<uint32_t>(i))) > refs[i];
  }
  return leaked;
}

}  // namespace baton
