#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/kvcache/layout.h"

namespace baton {

// How many arena blocks sequences need. A block of tokens takes one arena block in each cache group
// of the model.
//
// In a group with a window (KvWindow), a sequence releases each block when no later token reads the
// block, and a prompt takes its blocks chunk by chunk. So the sequence holds at most a window and a
// chunk at a time there, however long it becomes. In a model whose layers have states, it holds the
// blocks of a state as well. Pure arithmetic; counts are of arena blocks where nothing else is
// said.
class KvRoom final {
 public:
  // `windows` has KvCacheGroup::window of each cache group of blocks of tokens, `blocks` is the
  // arena's size, `state_blocks` StateBlocks.
  KvRoom(std::span<const KvWindow> windows,
         int32_t block_tokens,
         int32_t blocks,
         int32_t max_step_tokens,
         int32_t state_blocks = 0);
  KvRoom(const KvLayout& layout, int32_t blocks, int32_t max_step_tokens, int32_t state_blocks);

  // Whether sequences release blocks: some groups have a window, and the arena holds the windows
  // and a few blocks of a chunk.
  bool slides() const { return slides_; }
  // The groups with a window.
  std::span<const int32_t> sliding_groups() const { return sliding_groups_; }
  // The most tokens of a chunk: windows and chunks must fit into the arena.
  int32_t chunk_tokens() const { return chunk_tokens_; }
  // The most tokens of a sequence: it must fit into the arena when all others are preempted. The KV
  // of the last token is never computed, so one token more than the arena holds. Does not depend on
  // `max_step_tokens`, so that workers with equal arenas end an answer at the same token.
  int64_t max_tokens() const { return max_tokens_; }

  // A sequence of `tokens` tokens that holds each block.
  int32_t All(int64_t tokens) const;
  // The most that a sequence holds while `tokens` tokens are computed chunk by chunk.
  int32_t ByChunks(int64_t tokens) const;
  // The same for a sequence that computes at most `prompt` tokens by chunks and then decodes.
  int32_t ByChunksThenDecodes(int64_t tokens, int64_t prompt) const;
  // The same for a sequence that receives the KV of its prompt.
  int32_t ReceivedThenDecodes(int64_t tokens) const;
  // The blocks that a hand-off of `tokens` tokens receives: those that the next token reads.
  int32_t Received(int64_t tokens) const;
  // The size of the block table of each group for a sequence of `tokens` tokens whose first
  // `cached` blocks of tokens are cached, when it is admitted by chunks.
  std::vector<int32_t> FirstSizes(int64_t tokens, int32_t cached) const;
  // The first block of tokens that a sequence reads in `group` when it computes token `next`.
  int32_t FirstRead(int32_t group, int32_t next) const;
  // Whether it reads none of the blocks up to `block` then. With a sliding window, as FirstRead
  // without a division.
  bool IsPassed(int32_t group, int32_t next, int32_t block) const {
    return windows_[group].FirstRead(next) >= int64_t{block + 1} * block_tokens_;
  }

 private:
  int32_t BlocksFor(int64_t tokens) const;
  // The most blocks of a decoding sequence in a group. The window may begin inside a block. The
  // next token, and the token after it when a step is planned ahead, may need a block each. The
  // same for chunks: the last token of one and the first token of the next may be planned together.
  int32_t WindowBlocks(KvWindow window) const { return window.tokens / block_tokens_ + 2; }
  // The sum over all groups: `of_window(window)` for those with a window, if sequences release
  // blocks, but at most, and else, the blocks for `tokens`.
  template <class OfWindow>
  int32_t Sum(int64_t tokens, const OfWindow& of_window) const;
  // ByChunks of up to `chunk` tokens.
  int32_t HeldBy(int64_t tokens, int64_t chunk) const;
  int64_t MaxTokens(int64_t chunk) const;

  const std::vector<KvWindow> windows_;
  const int32_t block_tokens_;
  const int32_t blocks_;
  const int32_t state_blocks_;
  std::vector<int32_t> sliding_groups_;
  bool slides_ = false;
  int32_t chunk_tokens_ = 0;
  int64_t max_tokens_ = 0;
};

}  // namespace baton
