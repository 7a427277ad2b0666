#include "common/kvcache/prefix_cache.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace baton {
namespace {

void XorInto(Hash128& digest, const Hash128& hash) {
  digest.high ^= hash.high;
  digest.low ^= hash.low;
}

}  // namespace

PrefixCache::PrefixCache(int32_t blocks, int32_t block_tokens)
    : block_tokens_(block_tokens),
      slots_(blocks),
      tokens_(static_cast<size_t>(blocks) * block_tokens) {}

std::span<TokenId> PrefixCache::TokensOf(BlockId block) {
  return {tokens_.data() + static_cast<size_t>(block.value()) * block_tokens_,
          static_cast<size_t>(block_tokens_)};
}

std::span<const TokenId> PrefixCache::TokensOf(BlockId block) const {
  return const_cast<PrefixCache*>(this)->TokensOf(block);
}

std::optional<PrefixCache::Entry> PrefixCache::Find(const Hash128& hash,
                                                    CacheEntryId parent,
                                                    std::span<const TokenId> tokens) const {
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end()) return std::nullopt;
  const Slot& slot = slots_[found->second.value()];
  if (slot.parent != parent || !std::ranges::equal(TokensOf(found->second), tokens)) {
    return std::nullopt;
  }
  return Entry{found->second, slot.id};
}

std::optional<PrefixCache::Entry> PrefixCache::Insert(const Hash128& hash,
                                                      CacheEntryId parent,
                                                      std::span<const TokenId> tokens,
                                                      BlockId block) {
  BATON_CHECK(!Contains(block), "block {} is in the prefix cache already", block);
  BATON_CHECK(std::cmp_equal(tokens.size(), block_tokens_), "{} tokens in a block", tokens.size());
  if (!by_hash_.try_emplace(hash, block).second) return std::nullopt;
  slots_[block.value()] = {++last_id_, parent, hash};
  std::ranges::copy(tokens, TokensOf(block).begin());
  XorInto(digest_, hash);
  Record(CacheEvent::Kind::kStored, hash);
  return Entry{block, last_id_};
}

void PrefixCache::Remove(BlockId block) {
  BATON_CHECK(Contains(block), "block {} is not in the prefix cache", block);
  Slot& slot = slots_[block.value()];
  by_hash_.erase(slot.hash);
  XorInto(digest_, slot.hash);
  Record(CacheEvent::Kind::kRemoved, slot.hash);
  slot = {};
}

CacheEvent& PrefixCache::NewEvent(CacheEvent::Kind kind) {
  events_.push_back({++last_sequence_, kind, {}});
  return events_.back();
}

void PrefixCache::Record(CacheEvent::Kind kind, const Hash128& hash) {
  const bool extend = !events_.empty() && events_.back().kind == kind &&
                      events_.back().blocks.size() < kSnapshotBlocks;
  (extend ? events_.back() : NewEvent(kind)).blocks.push_back(hash);
}

std::vector<CacheEvent> PrefixCache::TakeEvents() {
  return std::exchange(events_, {});
}

void PrefixCache::AddSnapshot() {
  NewEvent(CacheEvent::Kind::kCleared);
  for (const auto& [hash, block] : by_hash_) Record(CacheEvent::Kind::kStored, hash);
}

Status PrefixCache::Check() const {
  Hash128 digest;
  size_t entries = 0;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].id == kRootEntry) continue;
    ++entries;
    XorInto(digest, slots_[i].hash);
    const auto found = by_hash_.find(slots_[i].hash);
    if (found == by_hash_.end() || found->second.value() != i) {
      return MakeStatus(StatusCode::kInternal, "cached block {} is not found by its hash", i);
    }
  }
  if (entries != by_hash_.size() || digest != digest_) {
    return MakeStatus(StatusCode::kInternal,
                      "prefix cache: map and slots differ: {} and {} entries, digest {} and {}",
                      by_hash_.size(),
                      entries,
                      digest_,
                      digest);
  }
  return OkStatus();
}

}  // namespace baton
