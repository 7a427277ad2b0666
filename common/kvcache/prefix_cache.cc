#include "common/kvcache/prefix_cache.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/kvcache/block_hash.h"

namespace baton {
namespace {

void XorInto(Hash128& digest, const Hash128& hash) {
  digest.high ^= hash.high;
  digest.low ^= hash.low;
}

}  // namespace

PrefixCache::PrefixCache(int32_t blocks, int32_t block_tokens, std::span<const KvWindow> windows)
    : block_tokens_(block_tokens), groups_(static_cast<int32_t>(windows.size())), places_(blocks) {
  const bool keeps_all = std::ranges::any_of(windows, &KvWindow::reads_all);
  for (const KvWindow window : windows) {
    in_window_.push_back(keeps_all && !window.reads_all() ? 1 : 0);
    ++members_[in_window_.back()];
  }
}

std::span<TokenId> PrefixCache::TokensOf(int32_t slot) {
  return {tokens_.data() + static_cast<size_t>(slot) * block_tokens_,
          static_cast<size_t>(block_tokens_)};
}

std::span<const TokenId> PrefixCache::TokensOf(int32_t slot) const {
  return const_cast<PrefixCache*>(this)->TokensOf(slot);
}

std::optional<PrefixCache::Entry> PrefixCache::Find(const Hash128& hash,
                                                    CacheEntryId parent,
                                                    std::span<const TokenId> tokens) const {
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end()) return std::nullopt;
  const Slot& slot = slots_[found->second];
  if (slot.parent != parent || !std::ranges::equal(TokensOf(found->second), tokens)) {
    return std::nullopt;
  }
  return Entry{found->second, slot.id};
}

std::optional<PrefixCache::Entry> PrefixCache::FindById(const Hash128& hash,
                                                        CacheEntryId id) const {
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end() || slots_[found->second].id != id) return std::nullopt;
  return Entry{found->second, id};
}

int32_t PrefixCache::NewSlot() {
  if (!unused_.empty()) {
    const int32_t slot = unused_.back();
    unused_.pop_back();
    return slot;
  }
  slots_.emplace_back();
  tokens_.resize(slots_.size() * block_tokens_);
  blocks_.resize(slots_.size() * groups_, kNone);
  return static_cast<int32_t>(slots_.size() - 1);
}

std::optional<PrefixCache::Entry> PrefixCache::Insert(const Hash128& hash,
                                                      CacheEntryId parent,
                                                      std::span<const TokenId> tokens) {
  BATON_CHECK(std::cmp_equal(tokens.size(), block_tokens_), "{} tokens in a block", tokens.size());
  const auto [entered, is_new] = by_hash_.try_emplace(hash, kNone);
  if (!is_new) return std::nullopt;
  const int32_t slot = entered->second = NewSlot();
  slots_[slot] = {++last_id_, parent, hash, {}};
  std::ranges::copy(tokens, TokensOf(slot).begin());
  return Entry{slot, last_id_};
}

std::optional<BlockId> PrefixCache::BlockOf(const Entry& entry, int32_t group) const {
  const int32_t block = blocks_[IndexOf(entry.slot, group)];
  if (block == kNone) return std::nullopt;
  return BlockId(static_cast<uint32_t>(block));
}

void PrefixCache::Add(const Entry& entry, int32_t group, BlockId block) {
  BATON_CHECK(!Contains(block), "block {} is in the prefix cache already", block);
  int32_t& place = blocks_[IndexOf(entry.slot, group)];
  BATON_CHECK(place == kNone, "an entry of the prefix cache has two blocks of group {}", group);
  place = static_cast<int32_t>(block.arena_index());
  places_[block.arena_index()] = {entry.slot, group};
  ++size_;
  CountBlock(entry.slot, group, 1);
}

void PrefixCache::AddState(const Entry& entry, std::span<const BlockId> blocks) {
  Add(entry, state_group(), blocks.front());
  for (const BlockId block : blocks.subspan(1)) {
    BATON_CHECK(!Contains(block), "block {} is in the prefix cache already", block);
    places_[block.arena_index()] = {entry.slot, state_group()};
    ++size_;
  }
  states_[entry.slot].assign(blocks.begin(), blocks.end());
}

std::span<const BlockId> PrefixCache::StateOf(const Entry& entry) const {
  const auto found = states_.find(entry.slot);
  return found == states_.end() ? std::span<const BlockId>() : found->second;
}

PrefixCache::Blocks PrefixCache::Remove(BlockId block) {
  BATON_CHECK(Contains(block), "block {} is not in the prefix cache", block);
  const auto [slot, group] = places_[block.arena_index()];
  Blocks removed = {block};
  if (const auto state = states_.find(slot); state != states_.end() && group == state_group()) {
    removed.assign(state->second.begin(), state->second.end());
    states_.erase(state);
  }
  for (const BlockId one : removed) places_[one.arena_index()] = {};
  size_ -= static_cast<int32_t>(removed.size());
  blocks_[IndexOf(slot, group)] = kNone;
  CountBlock(slot, group, -1);
  if (slots_[slot].blocks[0] + slots_[slot].blocks[1] > 0) return removed;
  by_hash_.erase(slots_[slot].hash);
  slots_[slot] = {};
  unused_.push_back(slot);
  return removed;
}

template <class Visit>
void PrefixCache::VisitNames(const Slot& slot,
                             const std::array<int32_t, 2>& all,
                             const Visit& visit) {
  if (slot.blocks[0] == all[0]) visit(slot.hash);
  if (slot.blocks[1] == all[1] && all[1] > 0) visit(WindowHash(slot.hash));
}

// Counts a block that the entry got (1) or lost (-1), and tells of the entry's last block to come,
// or first one to go.
void PrefixCache::CountBlock(int32_t slot, int32_t group, int32_t change) {
  const int32_t kind = in_window_[group];
  int32_t& blocks = slots_[slot].blocks[kind];
  const bool was_whole = blocks == members_[kind];
  blocks += change;
  const bool whole = blocks == members_[kind];
  if (whole == was_whole) return;
  const Hash128 name = kind == 0 ? slots_[slot].hash : WindowHash(slots_[slot].hash);
  XorInto(digest_, name);
  Record(whole ? CacheEvent::Kind::kStored : CacheEvent::Kind::kRemoved, name);
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
  for (const auto& [hash, slot] : by_hash_) {
    VisitNames(slots_[slot], members_, [&](const Hash128& name) {
      Record(CacheEvent::Kind::kStored, name);
    });
  }
}

Status PrefixCache::Check() const {
  Hash128 digest;
  size_t entries = 0;
  int32_t blocks = 0;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].id == kRootEntry) continue;
    ++entries;
    const int32_t of_entry = slots_[i].blocks[0] + slots_[i].blocks[1];
    blocks += of_entry;
    const auto state = states_.find(static_cast<int32_t>(i));
    if (state != states_.end()) blocks += static_cast<int32_t>(state->second.size()) - 1;
    VisitNames(slots_[i], members_, [&](const Hash128& name) { XorInto(digest, name); });
    const auto found = by_hash_.find(slots_[i].hash);
    if (found == by_hash_.end() || std::cmp_not_equal(found->second, i) || of_entry < 1) {
      return MakeStatus(StatusCode::kInternal,
                        "entry {} of the prefix cache has {} blocks, or is not found by its hash",
                        i,
                        of_entry);
    }
  }
  for (size_t i = 0; i < places_.size(); ++i) {
    const auto [slot, group] = places_[i];
    if (slot == kNone || std::cmp_equal(blocks_[IndexOf(slot, group)], i)) {
      continue;
    }
    const auto state = states_.find(slot);
    const bool in_state = group == state_group() && state != states_.end() &&
                          std::ranges::count(state->second, BlockId(static_cast<uint32_t>(i))) == 1;
    if (in_state) continue;
    return MakeStatus(StatusCode::kInternal, "cached block {} is not in its entry", i);
  }
  if (entries != by_hash_.size() || blocks != size_ || digest != digest_) {
    return MakeStatus(StatusCode::kInternal,
                      "prefix cache: map and slots differ: {} and {} entries, {} and {} blocks, "
                      "digest {} and {}",
                      by_hash_.size(),
                      entries,
                      size_,
                      blocks,
                      digest_,
                      digest);
  }
  return OkStatus();
}

}  // namespace baton
