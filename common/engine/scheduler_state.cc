#include <algorithm>
#include <utility>

#include "common/engine/scheduler.h"

// The states of sequences in models whose layers have states. A sequence has one state, after the
// last token that it computed, and its next row changes the state in place. A row reads another one
// (Sequence::read_state) where the state must stay: it is in the prefix cache (a checkpoint), or
// other samples read it, too.
namespace baton {

// Takes the blocks of a sequence that is admitted: those of a new state, and those of the state
// after the cached prefix, which the first row reads. A received state is written by the peer, or
// it is the cached one. False when too few blocks are available.
bool Scheduler::TakeStates(Sequence& sequence, const PrefixHit& hit) {
  if (!has_states()) return true;
  if (sequence.request->awaits_reservation()) {
    if (hit.state.empty()) return sequence.table.TakeNewState();
    sequence.table.TakeState(hit.state);
    return true;
  }
  if (hit.count > 0) {
    sequence.read_state = std::make_unique<Lease>(cache_);
    sequence.read_state->TakeState(hit.state);
  }
  return sequence.table.TakeNewState();
}

// The blocks of states that TakeStates takes, besides those of the hit.
int32_t Scheduler::NewStateBlocks(const Sequence& sequence, const PrefixHit& hit) const {
  const bool cached = sequence.request->awaits_reservation() && !hit.state.empty();
  return cached ? 0 : cache_.state_blocks();
}

// Lets the next row of `sequence` write its state. A state that has other users stays for them, and
// the row writes a new one. So does a checkpoint, if there are blocks to spare; else the row
// overwrites it. False when too few blocks are available.
bool Scheduler::MakeStateRoom(Sequence& sequence) {
  const bool first = sequence.planned() == 0;
  if (!has_states() || first || sequence.in_state || sequence.read_state != nullptr) return true;
  if (sequence.table.HasOwnState()) {
    const bool due = IsCheckpointDue(sequence);
    if (!due && !cache_.IsCached(sequence.table.state())) return true;
    if (Spare() < cache_.state_blocks()) {
      cache_.ForgetState(sequence.table);
      return true;
    }
    if (due) StoreState(sequence);
  } else if (cache_.available() < cache_.state_blocks()) {
    return false;
  } else {
    const int32_t taken = std::min(cache_.state_blocks(), sequence.promised);
    sequence.promised -= taken;
    promised_ -= taken;
  }
  sequence.read_state = std::make_unique<Lease>(sequence.table.SplitState());
  return sequence.table.TakeNewState();
}

// Whether all tokens of a sequence's state are in the prefix cache, and no step under way changes
// the state.
bool Scheduler::IsStateAtBorder(const Sequence& sequence) const {
  return cache_.prefix_caching() && sequence.computed > 0 && sequence.under_way == 0 &&
         !sequence.in_state && !sequence.chain_broken &&
         sequence.stored * cache_.block_tokens() == sequence.computed;
}

bool Scheduler::IsCheckpointDue(const Sequence& sequence) const {
  if (!IsStateAtBorder(sequence)) return false;
  const bool due = sequence.computed % checkpoint_tokens_ == 0 ||
                   (!sequence.request->forked && sequence.computed == LastBorder(sequence));
  return due && cache_.LacksState(sequence.hashes[sequence.stored - 1], sequence.chain);
}

// Enters the state of a sequence into the prefix cache, if it is at a border of blocks. It must not
// be written any more.
void Scheduler::StoreState(const Sequence& sequence) {
  if (!has_states() || !IsStateAtBorder(sequence)) return;
  cache_.StoreState(sequence.table, sequence.hashes[sequence.stored - 1], sequence.chain);
}

// The tokens of a prompt after which another one may continue that begins with it: its last token
// must be computed for its logits.
int32_t Scheduler::LastBorder(const Sequence& sequence) const {
  return (sequence.length() - 1) / cache_.block_tokens() * cache_.block_tokens();
}

// The most tokens of the next chunk of a prompt: it ends where a checkpoint is due.
int32_t Scheduler::CheckpointChunk(const Sequence& sequence) const {
  if (!has_states() || !cache_.prefix_caching()) return sequence.unplanned();
  const int32_t from = sequence.planned();
  int32_t end = (from / checkpoint_tokens_ + 1) * checkpoint_tokens_;
  const int32_t last = LastBorder(sequence);
  if (!sequence.request->forked && last > from) end = std::min(end, last);
  const int32_t count = end - from;
  // There, no chunk of a prompt has a single token, and none leaves one (ChunkOf).
  const int32_t left = sequence.request->request.prompt_length - end;
  const bool single = count == 1 || left == 1;
  return options_.engine.repeat_output_singly && single ? sequence.unplanned() : count;
}

}  // namespace baton
