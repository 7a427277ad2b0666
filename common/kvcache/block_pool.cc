#include "common/kvcache/block_pool.h"

#include <fmt/ranges.h>

#include "common/base/check.h"

namespace baton {

BlockPool::BlockPool(int32_t blocks, size_t groups) : blocks_(blocks), held_(groups) {
  plain_.reserve(blocks);
  for (int32_t i = blocks - 1; i >= 0; --i) plain_.push_back(static_cast<uint32_t>(i));
}

std::optional<BlockId> BlockPool::Take(int32_t group) {
  uint32_t index = kNone;
  if (!plain_.empty()) {
    index = plain_.back();
    plain_.pop_back();
  } else if (oldest_ != kNone) {
    index = oldest_;
    Unlink(index);
  } else {
    return std::nullopt;
  }
  blocks_[index].refs = 1;
  blocks_[index].group = static_cast<uint8_t>(group);
  ++held_[group];
  ++references_;
  return BlockId(index);
}

void BlockPool::Retain(BlockId id) {
  Block& block = blocks_[id.arena_index()];
  BATON_CHECK(block.refs > 0 || block.cached, "block {} is free and empty; it has no content", id);
  if (block.refs == 0) {
    Unlink(id.arena_index());
    ++held_[block.group];
  }
  ++block.refs;
  ++references_;
}

void BlockPool::Release(BlockId id) {
  Block& block = blocks_[id.arena_index()];
  BATON_CHECK(block.refs > 0, "block {} released more often than taken", id);
  --references_;
  if (--block.refs > 0) return;
  --held_[block.group];
  if (block.cached) {
    LinkNewest(id.arena_index());
  } else {
    plain_.push_back(id.arena_index());
  }
}

void BlockPool::MarkCached(BlockId id) {
  Block& block = blocks_[id.arena_index()];
  BATON_CHECK(block.refs > 0 && !block.cached, "block {} cannot become cached", id);
  block.cached = true;
  ++cached_;
}

void BlockPool::ClearCached(BlockId id) {
  Block& block = blocks_[id.arena_index()];
  BATON_CHECK(block.refs > 0 && block.cached, "block {} cannot be forgotten", id);
  block.cached = false;
  --cached_;
}

void BlockPool::LinkNewest(uint32_t index) {
  Block& block = blocks_[index];
  block.older = newest_;
  block.newer = kNone;
  (newest_ == kNone ? oldest_ : blocks_[newest_].newer) = index;
  newest_ = index;
  ++idle_cached_;
}

void BlockPool::Unlink(uint32_t index) {
  Block& block = blocks_[index];
  (block.older == kNone ? oldest_ : blocks_[block.older].newer) = block.newer;
  (block.newer == kNone ? newest_ : blocks_[block.newer].older) = block.older;
  block.older = block.newer = kNone;
  --idle_cached_;
}

Status BlockPool::Check(std::span<const int32_t> expected_refs) const {
  constexpr auto kInternal = StatusCode::kInternal;
  if (expected_refs.size() != blocks_.size()) {
    return MakeStatus(kInternal, "{} counts for {} blocks", expected_refs.size(), blocks_.size());
  }
  int32_t free_blocks = 0;
  int32_t cached_blocks = 0;
  int64_t references = 0;
  std::vector<int32_t> held(held_.size());
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    if (block.refs != expected_refs[i]) {
      return MakeStatus(
          kInternal, "block {} counts {} users, not {}", i, block.refs, expected_refs[i]);
    }
    free_blocks += block.refs == 0;
    held[block.group] += block.refs > 0;
    cached_blocks += block.cached;
    references += block.refs;
  }
  std::vector<bool> listed(blocks_.size());
  for (uint32_t index : plain_) {
    if (listed[index] || blocks_[index].refs != 0 || blocks_[index].cached) {
      return MakeStatus(kInternal, "block {} is wrongly in the list of empty blocks", index);
    }
    listed[index] = true;
  }
  int32_t idle = 0;
  for (uint32_t index = oldest_; index != kNone; index = blocks_[index].newer, ++idle) {
    if (listed[index] || blocks_[index].refs != 0 || !blocks_[index].cached) {
      return MakeStatus(kInternal, "block {} is wrongly in the list of idle cached blocks", index);
    }
    listed[index] = true;
  }
  if (idle != idle_cached_ || free_blocks != available() || cached_blocks != cached_ ||
      references != references_) {
    return MakeStatus(kInternal,
                      "counter and recount differ: free {} and {}, idle cached {} and {}, "
                      "cached {} and {}, references {} and {}",
                      available(),
                      free_blocks,
                      idle_cached_,
                      idle,
                      cached_,
                      cached_blocks,
                      references_,
                      references);
  }
  if (held != held_) {
    return MakeStatus(kInternal,
                      "the cache groups count [{}] blocks with users, not [{}]",
                      fmt::join(held_, ", "),
                      fmt::join(held, ", "));
  }
  return OkStatus();
}

}  // namespace baton
