#include "common/engine/kv_room.h"

#include <algorithm>
#include <limits>

namespace baton {

KvRoom::KvRoom(std::span<const KvWindow> windows,
               int32_t block_tokens,
               int32_t blocks,
               int32_t max_step_tokens,
               int32_t state_blocks)
    : windows_(windows.begin(), windows.end()),
      block_tokens_(block_tokens),
      blocks_(blocks),
      state_blocks_(state_blocks) {
  constexpr int32_t kLeastChunkBlocks = 3;  // Scheduler::ChunkOf needs a budget of three tokens
  // In a model with groups without a window, chunks take at most this part of what windows leave:
  // the rest is for longer sequences.
  constexpr int64_t kChunkPart = 4;
  int64_t in_windows = 0;
  for (int32_t group = 0; group < std::ssize(windows_); ++group) {
    if (windows_[group].reads_all()) continue;
    in_windows += WindowBlocks(windows_[group]);
    sliding_groups_.push_back(group);
  }
  const bool ends = sliding_groups_.size() < windows_.size();
  const int64_t room = (blocks - in_windows) / (std::ssize(windows_) * (ends ? kChunkPart : 1));
  slides_ = !sliding_groups_.empty() && room >= kLeastChunkBlocks;
  const int64_t largest = slides_ ? room * block_tokens : max_step_tokens;
  chunk_tokens_ = static_cast<int32_t>(std::min<int64_t>(max_step_tokens, largest));
  max_tokens_ = slides_ && !ends ? std::numeric_limits<int64_t>::max() : MaxTokens(largest);
}

KvRoom::KvRoom(const KvLayout& layout,
               int32_t blocks,
               int32_t max_step_tokens,
               int32_t state_blocks)
    : KvRoom(std::span<const KvWindow>(layout.windows()).first(layout.block_groups()),
             layout.block_tokens,
             blocks,
             max_step_tokens,
             state_blocks) {}

// By bisection, because the blocks of a sequence grow with its tokens.
int64_t KvRoom::MaxTokens(int64_t chunk) const {
  int64_t fits = 0;
  int64_t too_many = int64_t{blocks_} + 1;  // blocks of tokens
  while (fits + 1 < too_many) {
    const int64_t middle = (fits + too_many) / 2;
    (HeldBy(middle * block_tokens_, chunk) <= blocks_ ? fits : too_many) = middle;
  }
  return fits * block_tokens_ + 1;
}

int32_t KvRoom::BlocksFor(int64_t tokens) const {
  return static_cast<int32_t>((tokens + block_tokens_ - 1) / block_tokens_);
}

template <class OfWindow>
int32_t KvRoom::Sum(int64_t tokens, const OfWindow& of_window) const {
  const int32_t all = BlocksFor(tokens);
  int32_t sum = state_blocks_;
  for (const KvWindow window : windows_) {
    sum += slides_ && !window.reads_all() ? std::min(all, of_window(window)) : all;
  }
  return sum;
}

int32_t KvRoom::All(int64_t tokens) const {
  return BlocksFor(tokens) * static_cast<int32_t>(windows_.size()) + state_blocks_;
}

int32_t KvRoom::HeldBy(int64_t tokens, int64_t chunk) const {
  return Sum(tokens, [&](KvWindow window) { return WindowBlocks(window) + BlocksFor(chunk); });
}

int32_t KvRoom::ByChunks(int64_t tokens) const {
  return HeldBy(tokens, chunk_tokens_);
}

int32_t KvRoom::ByChunksThenDecodes(int64_t tokens, int64_t prompt) const {
  return Sum(tokens, [&](KvWindow window) {
    const int32_t at_chunk = WindowBlocks(window) + BlocksFor(chunk_tokens_);
    return std::max(std::min(BlocksFor(prompt), at_chunk), WindowBlocks(window));
  });
}

int32_t KvRoom::ReceivedThenDecodes(int64_t tokens) const {
  return Sum(tokens, [&](KvWindow window) { return WindowBlocks(window); });
}

int32_t KvRoom::Received(int64_t tokens) const {
  int32_t sum = state_blocks_;
  for (const KvWindow window : windows_) {
    sum += BlocksFor(tokens) - FirstBlockKept(tokens, window, block_tokens_);
  }
  return sum;
}

std::vector<int32_t> KvRoom::FirstSizes(int64_t tokens, int32_t cached) const {
  const int32_t all = BlocksFor(tokens);
  std::vector<int32_t> sizes(windows_.size(), all);
  if (!slides_) return sizes;
  const int32_t chunk = cached + BlocksFor(chunk_tokens_);
  for (size_t group = 0; group < sizes.size(); ++group) {
    if (!windows_[group].reads_all()) sizes[group] = std::min(all, chunk);
  }
  return sizes;
}

int32_t KvRoom::FirstRead(int32_t group, int32_t next) const {
  return FirstBlockRead(next, windows_[group], block_tokens_);
}

}  // namespace baton
