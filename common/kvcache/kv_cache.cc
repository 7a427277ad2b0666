#include "common/kvcache/kv_cache.h"

#include <algorithm>
#include <utility>

#include "common/kvcache/layout.h"

namespace baton {

KvCache::KvCache(int32_t blocks,
                 int32_t block_tokens,
                 bool prefix_cache,
                 std::vector<KvWindow> windows,
                 int32_t state_blocks)
    : block_tokens_(block_tokens),
      prefix_caching_(prefix_cache),
      windows_(std::move(windows)),
      state_blocks_(state_blocks),
      pool_(blocks, windows_.size()),
      prefix_(prefix_cache ? blocks : 0, block_tokens, windows_) {}

PrefixHit KvCache::Match(std::span<const Hash128> hashes,
                         std::span<const TokenId> tokens,
                         int32_t limit,
                         std::optional<int32_t> computed) const {
  PrefixHit hit;
  if (!prefix_caching_) return hit;
  const size_t most = std::min(hashes.size(), static_cast<size_t>(std::max(limit, 0)));
  // The first block of a group that a hit of `count` blocks needs.
  const auto first = [&](int32_t group, int32_t count) {
    return std::min(FirstKept(group, computed.value_or(count * block_tokens_)), count);
  };
  std::vector<PrefixCache::Entry> entries;
  // By group, the first block from which on all blocks up to the last entry are cached.
  const auto all = static_cast<int32_t>(windows_.size());
  absl::InlinedVector<int32_t, 1> cached_from(all, 0);
  for (size_t i = 0; i < most; ++i) {
    const CacheEntryId parent = entries.empty() ? kRootEntry : entries.back().id;
    const auto entry =
        prefix_.Find(hashes[i], parent, tokens.subspan(i * block_tokens_, block_tokens_));
    if (!entry) break;
    entries.push_back(*entry);
    const auto count = static_cast<int32_t>(entries.size());
    bool resumes = true;
    bool ends = false;
    for (int32_t group = 0; group < all; ++group) {
      if (!prefix_.BlockOf(*entry, group)) cached_from[group] = count;
      resumes &= cached_from[group] <= first(group, count);
      ends |= windows_[group].reads_all() && cached_from[group] > 0;
    }
    if (ends) break;
    if (resumes) hit.count = count;
  }
  if (hit.count == 0) return hit;
  hit.last = entries[hit.count - 1].id;
  for (int32_t group = 0; group < groups(); ++group) {
    PrefixHit::Part& part = hit.parts.emplace_back();
    part.first = first(group, hit.count);
    for (int32_t i = part.first; i < hit.count; ++i) {
      part.blocks.push_back(*prefix_.BlockOf(entries[i], group));
      hit.idle += pool_.refs(part.blocks.back()) == 0;
    }
  }
  if (state_blocks_ > 0 && first(groups(), hit.count) < hit.count) {
    const std::span<const BlockId> state = prefix_.StateOf(entries[hit.count - 1]);
    hit.state.assign(state.begin(), state.end());
    hit.idle += pool_.refs(state.front()) == 0 ? state_blocks_ : 0;
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
  auto entry = prefix_.Find(hash, parent, tokens);
  if (!entry) {
    // A block that is cached already has another entry.
    bool has_new = false;
    for (int32_t group = 0; group < groups(); ++group) {
      has_new |= index >= table.first(group) && !pool_.is_cached(table.blocks(group)[index]);
    }
    if (has_new) entry = prefix_.Insert(hash, parent, tokens);
    if (!entry) return std::nullopt;
  }
  for (int32_t group = 0; group < groups(); ++group) {
    if (index < table.first(group)) continue;
    const BlockId block = table.blocks(group)[index];
    if (const auto known = prefix_.BlockOf(*entry, group)) {
      // Must not use up an available block, because it may be promised to another sequence.
      const bool free_of_cost = pool_.refs(*known) > 0 || pool_.refs(block) == 1;
      if (adopt && *known != block && free_of_cost) table.Replace(group, index, *known);
    } else if (!pool_.is_cached(block)) {
      prefix_.Add(*entry, group, block);
      pool_.MarkCached(block);
    }
  }
  return entry->id;
}

bool KvCache::LacksState(const Hash128& hash, CacheEntryId entry) const {
  const auto found = prefix_.FindById(hash, entry);
  return prefix_caching_ && found.has_value() && prefix_.StateOf(*found).empty();
}

void KvCache::StoreState(const Lease& table, const Hash128& hash, CacheEntryId entry) {
  if (!LacksState(hash, entry) || IsCached(table.state())) return;
  prefix_.AddState(*prefix_.FindById(hash, entry), table.state());
  for (const BlockId block : table.state()) pool_.MarkCached(block);
}

void KvCache::ForgetState(const Lease& table) {
  if (!table.state().empty()) Uncache(table.state().front());
}

void KvCache::Forget(const Lease& table) {
  for (int32_t group = 0; group < groups(); ++group) {
    for (const BlockId block : table.held(group)) Uncache(block);
  }
  ForgetState(table);
}

void KvCache::ForgetAll() {
  for (int32_t i = 0; i < pool_.total(); ++i) {
    const BlockId block(i);
    if (pool_.is_cached(block)) Uncache(block);
  }
}

std::optional<BlockId> KvCache::Take(int32_t group) {
  const auto block = pool_.Take(group);
  if (block) Uncache(*block);
  return block;
}

void KvCache::Uncache(BlockId block) {
  if (!pool_.is_cached(block)) return;
  for (const BlockId removed : prefix_.Remove(block)) {
    // Only a block with a user can lose its content; this moves a free one to the empty blocks.
    const bool idle = pool_.refs(removed) == 0;
    if (idle) pool_.Retain(removed);
    pool_.ClearCached(removed);
    if (idle) pool_.Release(removed);
  }
}

std::vector<int32_t> KvCache::CountRefs(std::span<const Lease* const> leases) const {
  std::vector<int32_t> refs(pool_.total());
  for (const Lease* lease : leases) {
    for (int32_t group = 0; group < lease->groups(); ++group) {
      for (BlockId block : lease->held(group)) ++refs[block.arena_index()];
    }
    for (const BlockId block : lease->state()) ++refs[block.arena_index()];
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
