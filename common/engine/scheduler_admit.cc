#include <algorithm>
#include <numeric>
#include <utility>

#include "common/engine/scheduler.h"

// The admission of waiting sequences.
namespace baton {
namespace {

constexpr int32_t kPlansBetweenLooks = 16;

}  // namespace

// Admits strictly by rank: when a sequence does not fit, no sequence after it is admitted. There
// are two exceptions. A prompt is skipped while another prompt computes its next block, because it
// will soon find that block in the cache. When the step has no budget for prompts, reservations
// pass them, because reservations need no budget.
void Scheduler::AdmitWaiting(Time now) {
  auto next = waiting_.begin();
  while (next != waiting_.end() && plan_->preempted == 0) {
    Sequence& sequence = **next++;
    const bool reservation = sequence.request->awaits_reservation();
    if (!reservation && PromptBudget(0) <= 0) {
      if (waiting_reservations_ == 0) break;
      continue;
    }
    if (Blocked(sequence)) break;
    const PrefixHit hit = FindPrefix(sequence);
    if (!reservation && ComputedByOther(sequence, hit)) continue;
    if (!Admit(sequence, hit, now)) break;
  }
  RefuseExcessReservations();
}

// Admits the reservations at the head of the queue. A reservation needs no step and does not affect
// a step under way.
void Scheduler::AdmitReservations(Time now) {
  while (!waiting_.empty()) {
    Sequence& sequence = **waiting_.begin();
    if (!sequence.request->awaits_reservation() || Blocked(sequence)) return;
    if (!Admit(sequence, FindPrefix(sequence), now)) return;
  }
}

// Blocks that a new sequence may take without taking those that running sequences need. Under
// kMaxUtilization this is an estimate: each sequence may need one more block of tokens soon, and a
// prompt admitted into these blocks would only cause preemption.
int32_t Scheduler::Spare() const {
  if (!never_evicts()) {
    return cache_.available() - static_cast<int32_t>(running_.size()) * cache_.groups();
  }
  // With a sliding window, a sequence that releases a shared block makes no block available. So the
  // promised blocks of all sequences must fit beside each other.
  if (slides()) return cache_.total() - promised_ - HandoffBlocks();
  return cache_.available() - promised_;
}

bool Scheduler::Blocked(const Sequence& sequence) {
  const int32_t slots = sequence.request->forked ? 1 : sequence.request->request.samples;
  if (slots_ + slots > slot_limit_) return true;
  if (blocked_ != &sequence || ++blocked_plans_ >= kPlansBetweenLooks) return false;
  return Spare() < blocked_need_;
}

PrefixHit Scheduler::FindPrefix(const Sequence& sequence) const {
  // The last token must be computed for its logits, except in a kDecode request, whose first token
  // arrives with the KV.
  const bool whole = sequence.request->awaits_reservation();
  const ActiveRequest& active = *sequence.request;
  // The logprobs of the prompt are those of the tokens that this engine computes.
  const bool scores = active.scored < active.to_score;
  const int32_t last = scores ? active.scored : sequence.length() - (whole ? 0 : 1);
  const int32_t limit = last / cache_.block_tokens();
  if (whole) return cache_.Match(sequence.hashes, sequence.tokens, limit, sequence.length());
  PrefixHit hit = cache_.Match(sequence.hashes, sequence.tokens, limit);
  if (options_.engine.repeat_output_singly && hit.count > 0) {
    const bool single = hit.count * cache_.block_tokens() == active.request.prompt_length - 1;
    if (single) hit = cache_.Match(sequence.hashes, sequence.tokens, hit.count - 1);
  }
  return hit;
}

bool Scheduler::ComputedByOther(const Sequence& sequence, const PrefixHit& hit) const {
  const auto next = static_cast<size_t>(hit.count);
  if (next >= sequence.hashes.size()) return false;
  if (static_cast<int32_t>(next + 1) * cache_.block_tokens() >= sequence.length()) return false;
  return std::ranges::find(computing_, sequence.hashes[next]) != computing_.end();
}

bool Scheduler::FitsNow(const Sequence& sequence, const PrefixHit& hit) {
  int32_t need = BlocksToPromise(sequence);
  if (!never_evicts()) {
    const std::vector<int32_t> sizes = FirstSizes(sequence, hit.count);
    need = hit.idle + NewStateBlocks(sequence, hit);
    for (int32_t group = 0; group < cache_.groups(); ++group) {
      need += sizes[group] - std::max(hit.count, FirstHeld(sequence, group));
    }
  } else if (!slides()) {
    need += hit.idle - hit.count * cache_.groups();
  }
  if (need <= Spare()) return true;
  blocked_ = &sequence;
  blocked_need_ = need;
  blocked_plans_ = 0;
  return false;
}

// The first block of a group that a sequence holds without cached blocks. A hand-off does not send
// the blocks before the window.
int32_t Scheduler::FirstHeld(const Sequence& sequence, int32_t group) const {
  if (!sequence.request->awaits_reservation()) return 0;
  return cache_.FirstKept(group, sequence.length());
}

// The sizes of the block tables of a sequence that is admitted with `hits` cached blocks of tokens.
std::vector<int32_t> Scheduler::FirstSizes(const Sequence& sequence, int32_t hits) const {
  if (slides(sequence)) return room_.FirstSizes(sequence.length(), hits);
  return std::vector<int32_t>(cache_.groups(), cache_.BlocksFor(sequence.length()));
}

// False when it does not fit now.
bool Scheduler::Admit(Sequence& sequence, const PrefixHit& hit, Time now) {
  if (!FitsNow(sequence, hit)) {
    // With the cached state that it reads and the one that it writes it would never fit.
    const bool never = !hit.state.empty() && blocked_need_ > cache_.total();
    return never && Admit(sequence, {}, now);
  }
  ActiveRequest& active = *sequence.request;
  const int32_t hits = hit.count;
  if (hits > 0) sequence.table.Take(hit);
  for (int32_t group = 0; group < cache_.groups(); ++group) {
    sequence.table.Skip(group, FirstHeld(sequence, group));
  }
  const std::vector<int32_t> sizes = FirstSizes(sequence, hits);
  if (!TakeStates(sequence, hit) || !sequence.table.GrowTo(sizes)) {
    sequence.table.Clear();
    sequence.read_state.reset();
    return false;
  }
  sequence.stored = hits;
  sequence.chain = hit.last;
  sequence.chain_broken = hits > 0 && hit.last == kRootEntry;
  sequence.slots = active.forked ? 1 : active.request.samples;
  slots_ += sequence.slots;
  if (never_evicts()) {
    const int32_t all = std::accumulate(sizes.begin(), sizes.end(), NewStateBlocks(sequence, hit));
    const int32_t taken = slides() ? 0 : all;
    sequence.promised = BlocksToPromise(sequence) - taken;
    promised_ += sequence.promised;
  }
  if (!active.started) {
    active.times.queued = now - active.added;
    active.times.cached_tokens = hits * cache_.block_tokens();
    totals_.cached_tokens += active.times.cached_tokens;
  }
  Dequeue(sequence);
  if (active.awaits_reservation()) {
    StartReserved(sequence, hit);
    return true;
  }
  if (!active.started) active.first_step = now;
  active.started = true;
  sequence.computed = hits * cache_.block_tokens();
  Run(sequence);
  if (active.request.kind == RequestKind::kPrefill) outcomes_.started.push_back(active.key());
  auto cached = LeaseChunk(sequence, sequence.computed, /*last=*/false);
  if (cached) outcomes_.chunks.push_back(*std::move(cached));
  const auto next = static_cast<size_t>(hits);
  if (next < sequence.hashes.size()) computing_.push_back(sequence.hashes[next]);
  // The caller has checked that the budget is not used up.
  int32_t budget = std::max(1, PromptBudget(sequence.computed));
  if (slides(sequence)) budget = std::min(budget, room_.chunk_tokens());
  const int32_t count = ChunkOf(sequence, budget);
  if (count > 0) AddRow(sequence, count, RowKind::kPrompt);
  return true;
}

void Scheduler::StartReserved(Sequence& sequence, const PrefixHit& hit) {
  const RequestKey key = sequence.request->key();
  sequence.MoveTo(SequenceState::kAwaitingKv);
  awaiting_kv_.push_back(&sequence);
  const int32_t blocks = sequence.table.size();
  Lease lease = sequence.table.Share(blocks);
  const std::span<const BlockId> state = sequence.table.state();
  if (has_states()) lease.TakeState(state);
  handoffs_.insert_or_assign(key, std::move(lease));
  outcomes_.reservations.push_back({.id = key.first,
                                    .epoch = key.second,
                                    .cached_blocks = hit.count,
                                    .blocks = sequence.table.Entries(0, blocks),
                                    .state = {state.begin(), state.end()}});
}

// Refuses the lowest ranked reservations, because they would wait longest.
void Scheduler::RefuseExcessReservations() {
  const int32_t most = options_.engine.max_waiting_reservations;
  if (waiting_reservations_ <= most) return;
  int32_t excess = waiting_reservations_ - most;
  std::vector<ActiveRequest*> refused;
  for (auto it = waiting_.rbegin(); it != waiting_.rend() && excess > 0; ++it) {
    if (!(*it)->request->awaits_reservation()) continue;
    refused.push_back((*it)->request);
    --excess;
  }
  for (ActiveRequest* active : refused) Fail(*active, NoBlocksFor(*active));
  Reap();
}

}  // namespace baton
