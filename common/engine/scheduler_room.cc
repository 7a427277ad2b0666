#include <algorithm>

#include "common/engine/scheduler.h"

// How many blocks a request needs (KvRoom). A prompt that is handed off takes all its blocks at its
// admission, because it must not wait for blocks later: a decode worker may hold blocks for it.
namespace baton {

// Whether `sequence` takes the blocks of its prompt chunk by chunk.
bool Scheduler::slides(const Sequence& sequence) const {
  const ActiveRequest& active = *sequence.request;
  return slides() && active.request.kind != RequestKind::kPrefill && !active.awaits_reservation();
}

int32_t Scheduler::HandoffBlocks() const {
  int64_t blocks = 0;
  for (const auto& [key, lease] : handoffs_) blocks += lease.held();
  return static_cast<int32_t>(blocks);
}

// Releases the blocks whose tokens all lie before the window of the next token to compute. The
// steps under way, if there are any, compute that token or later ones.
void Scheduler::ReleaseSlidBlocks(Sequence& sequence) {
  for (const int32_t group : room_.sliding_groups()) {
    if (!room_.IsPassed(group, sequence.computed, sequence.table.first(group))) continue;
    const int32_t read_first = room_.FirstRead(group, sequence.computed);
    sequence.table.ReleaseBefore(group, std::min(read_first, sequence.table.size(group) - 1));
  }
}

// The fewest blocks with which a request can be served. A request that may be preempted needs
// blocks for its prompt and one more token. Its answer ends when it fills the arena, unless its
// blocks slide.
int32_t Scheduler::MinBlocks(const ActiveRequest& active) const {
  if (never_evicts() || active.request.kind == RequestKind::kPrefill) return MaxBlocks(active);
  const int32_t with_output = std::min(active.sequences[0].length() + 1, active.longest - 1);
  return slides() ? room_.ByChunks(with_output) : room_.All(with_output);
}

// The most blocks that one sequence holds at a time, when no block is shared. The last token is
// never computed, so its KV needs no block.
int32_t Scheduler::OwnWorstBlocks(const ActiveRequest& active) const {
  const int32_t prompt = active.sequences[0].length();
  if (active.request.kind == RequestKind::kPrefill) return room_.All(prompt);
  const bool received = active.request.kind == RequestKind::kDecode;
  return received ? room_.ReceivedThenDecodes(active.longest - 1)
                  : room_.ByChunksThenDecodes(active.longest - 1, prompt);
}

// The most blocks of a request. Under kGuaranteedNoEvict all its samples count, and the copies of
// shared partial blocks and states. With a sliding window the samples do not share their blocks for
// long.
int32_t Scheduler::MaxBlocks(const ActiveRequest& active) const {
  const int32_t own = OwnWorstBlocks(active);
  const Request& request = active.request;
  if (!never_evicts() || request.kind == RequestKind::kPrefill) return own;
  if (slides()) return own * request.samples;
  const int32_t length = active.sequences[0].length();
  const int32_t shared = SharedBlocks(length);
  const bool partial = length % cache_.block_tokens() != 0;
  const bool others = request.samples > 1 || request.kind == RequestKind::kDecode;
  const int32_t copied = (partial ? cache_.groups() : 0) + cache_.state_blocks();
  return own + (request.samples - 1) * (own - shared) + (others ? copied : 0);
}

// The full blocks of a prompt of `length` tokens, which its samples share.
int32_t Scheduler::SharedBlocks(int32_t length) const {
  return length / cache_.block_tokens() * cache_.groups();
}

// The blocks that kGuaranteedNoEvict promises to a sequence at its admission. With a sliding
// window, a sequence can be preempted even so, because the lease of a hand-off may hold blocks that
// its sequence no longer uses. A preempted sequence computes its tokens again in chunks, even if it
// received them.
int32_t Scheduler::BlocksToPromise(const Sequence& sequence) const {
  const ActiveRequest& active = *sequence.request;
  return active.forked ? room_.ByChunks(active.longest - 1) : MaxBlocks(active);
}

}  // namespace baton
