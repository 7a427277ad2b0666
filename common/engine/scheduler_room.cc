#include <algorithm>
#include <limits>

#include "common/engine/scheduler.h"

// How many blocks a request needs.
//
// A sequence of a model with a sliding window releases each block when no later token reads the
// block. It then holds at most MaxHeldBlocks at a time, however long it becomes. A sequence whose
// blocks a hand-off sends or receives holds all blocks of its prompt.
namespace baton {

// Whether sequences may be longer than the arena: the arena holds a window and a few blocks of a
// chunk.
bool Scheduler::slides() const {
  constexpr int32_t kLeastChunkBlocks = 3;  // ChunkOf needs a budget of three tokens
  return options_.sliding_window > 0 && cache_.total() >= WindowBlocks() + kLeastChunkBlocks;
}

// Whether `sequence` takes the blocks of its prompt chunk by chunk.
bool Scheduler::slides(const Sequence& sequence) const {
  const ActiveRequest& active = *sequence.request;
  return slides() && active.request.kind != RequestKind::kPrefill && !active.awaits_reservation();
}

// The most blocks of a decoding sequence. The window may begin inside a block. The next token, and
// the token after it when a step is planned ahead, may need a block each.
int32_t Scheduler::WindowBlocks() const {
  return options_.sliding_window / cache_.block_tokens() + 2;
}

// The most tokens of a chunk: a window and a chunk must fit into the arena.
int32_t Scheduler::ChunkTokens() const {
  const int64_t room = int64_t{cache_.total() - WindowBlocks()} * cache_.block_tokens();
  return static_cast<int32_t>(std::min<int64_t>(options_.engine.max_step_tokens, room));
}

int32_t Scheduler::MaxHeldBlocks() const {
  return WindowBlocks() + cache_.BlocksFor(ChunkTokens());
}

int32_t Scheduler::HandoffBlocks() const {
  size_t blocks = 0;
  for (const auto& [key, lease] : handoffs_) blocks += lease.held().size();
  return static_cast<int32_t>(blocks);
}

// Releases the blocks whose tokens all lie before the window of the next token to compute. The
// steps under way, if there are any, compute that token or later ones.
void Scheduler::ReleaseSlidBlocks(Sequence& sequence) {
  const int32_t window = options_.sliding_window;
  if (window == 0 || sequence.computed < window) return;
  const int32_t read_first = (sequence.computed - window + 1) / cache_.block_tokens();
  sequence.table.ReleaseBefore(std::min(read_first, sequence.table.size() - 1));
}

// The fewest blocks with which a request can be served. A request that may be preempted needs
// blocks for its prompt and one more token. Its answer ends when it fills the arena, unless its
// blocks slide.
int32_t Scheduler::MinBlocks(const ActiveRequest& active) const {
  if (never_evicts() || active.request.kind == RequestKind::kPrefill) return MaxBlocks(active);
  const int32_t with_output = std::min(active.sequences[0].length() + 1, active.longest - 1);
  const int32_t blocks = cache_.BlocksFor(with_output);
  return slides(active.sequences[0]) ? std::min(blocks, MaxHeldBlocks()) : blocks;
}

// The most tokens of a sequence: it must fit into the arena when all others are preempted. The KV
// of the last token is never computed, so one token more than the arena holds.
int64_t Scheduler::MaxTokens() const {
  if (slides()) return std::numeric_limits<int64_t>::max();
  return int64_t{cache_.total()} * cache_.block_tokens() + 1;
}

// The most blocks that one sequence holds at a time, when no block is shared. The last token is
// never computed, so its KV needs no block.
int32_t Scheduler::OwnWorstBlocks(const ActiveRequest& active) const {
  const Sequence& leader = active.sequences[0];
  const int32_t prompt = cache_.BlocksFor(leader.length());
  if (active.request.kind == RequestKind::kPrefill) return prompt;
  const int32_t all = cache_.BlocksFor(active.longest - 1);
  if (!slides()) return all;
  // The first blocks of a received prompt are released after its first step. A second step may be
  // planned before that.
  const bool received = active.request.kind == RequestKind::kDecode;
  const int32_t first =
      received ? cache_.BlocksFor(leader.length() + 2) : std::min(prompt, MaxHeldBlocks());
  return std::min(all, std::max(first, WindowBlocks()));
}

// The most blocks of a request. Under kGuaranteedNoEvict all its samples count, and the copy of a
// shared partial block. With a sliding window the samples do not share their blocks for long.
int32_t Scheduler::MaxBlocks(const ActiveRequest& active) const {
  const int32_t own = OwnWorstBlocks(active);
  const Request& request = active.request;
  if (!never_evicts() || request.kind == RequestKind::kPrefill) return own;
  if (slides()) return own * request.samples;
  const int32_t length = active.sequences[0].length();
  const int32_t shared = length / cache_.block_tokens();
  const bool partial = length % cache_.block_tokens() != 0;
  const bool copied = partial && (request.samples > 1 || request.kind == RequestKind::kDecode);
  return own + (request.samples - 1) * (own - shared) + (copied ? 1 : 0);
}

// The blocks that kGuaranteedNoEvict promises to a sequence at its admission. With a sliding
// window, a sequence can be preempted even so, because the lease of a hand-off may hold blocks that
// its sequence no longer uses. A preempted sequence computes its tokens again in chunks, even if it
// received them.
int32_t Scheduler::BlocksToPromise(const Sequence& sequence) const {
  const ActiveRequest& active = *sequence.request;
  if (!active.forked) return MaxBlocks(active);
  const int32_t all = cache_.BlocksFor(active.longest - 1);
  return slides() ? std::min(all, MaxHeldBlocks()) : all;
}

}  // namespace baton
