#include <algorithm>
#include <cmath>
#include <iterator>

#include "common/base/check.h"
#include "common/engine/pool_states.h"
#include "common/engine/scheduler.h"
#include "common/engine/sequence_masks.h"

namespace baton {
namespace {

bool HasLogprob(const SampledToken& token) {
  return std::isfinite(token.logprob);
}

}  // namespace

void Scheduler::Commit(std::span<SampledToken> sampled, Time now) {
  QueuedStep& step = steps_.Pop();
  StepPlan& plan = step.plan;
  BATON_CHECK(std::cmp_equal(sampled.size(), plan.logit_rows),
              "{} tokens for {} logit rows",
              sampled.size(),
              plan.logit_rows);
  std::ranges::move(plan.chunks, std::back_inserter(outcomes_.chunks));
  outcomes_.tokens.reserve(outcomes_.tokens.size() + sampled.size());
  size_t used = 0;
  std::span<const float> states(step.states);
  const size_t width = plan.state_rows == 0 ? 0 : states.size() / plan.state_rows;
  for (const PlanRow& row : plan.rows) {
    Sequence& sequence = *row.sequence;
    ActiveRequest& active = *sequence.request;
    if (!plan.foreseen) sequence.under_way -= row.count;
    const bool verifies = row.kind == RowKind::kVerify;
    if (row.reads_state) {
      sequence.reading = false;
      if (!verifies) sequence.read_state.reset();
    }
    const auto scores = sampled.subspan(used, row.scored);
    const auto tokens = sampled.subspan(used + row.scored, row.samples);
    used += row.scored + row.samples;
    const bool pools = active.request.pools();
    const auto pooled = states.first(pools ? (row.scored + row.samples) * width : 0);
    states = states.subspan(pooled.size());
    if (sequence.state != SequenceState::kRunning) continue;
    if (pools) {
      CommitPooled(sequence, row, pooled, now);
      continue;
    }
    std::ranges::move(scores, std::back_inserter(active.prompt_logprobs));
    // The next step computes the last token of the row again, and by then it has its mask. Such a
    // row is never foreseen.
    if (!tokens.empty() && tokens[0].token == kLateToken && !verifies) {
      sequence.computed += row.count - 1;
      sequence.in_state = has_states();
      continue;
    }
    if (!plan.foreseen && !verifies) sequence.computed += row.count;
    const int32_t in_prompt = active.request.prompt_length - row.first;
    totals_.prompt_tokens += std::clamp(in_prompt, 0, row.count);
    // All samples of a row come from the same logits, so either all of them have a token or none.
    // A token that is forced has no logprob then.
    const bool none = !tokens.empty() &&
                      (tokens[0].token == kNoToken || (!active.request.labels.empty() &&
                                                       !std::ranges::all_of(tokens, HasLogprob)));
    if (none && !verifies) {
      FailWithoutToken(sequence, row.first + row.count);
      continue;
    }
    if (!active.forked) {
      StoreFullBlocks(sequence);
      ReleaseSlidBlocks(sequence);
      if (tokens.empty()) continue;
      active.times.prefill = now - active.first_step;
      TakeFirstTokens(active, tokens, /*emit=*/true);
      continue;
    }
    if (verifies) {
      TakeVerified(sequence, row, tokens);
    } else if (!tokens.empty()) {
      TakeToken(sequence, row.first + row.count, std::move(tokens[0]), /*emit=*/true);
    }
    if (sequence.state == SequenceState::kRunning) store_later_.push_back(&sequence);
  }
  Reap();
  step.Clear();
}

// Takes the hidden states of one row of a request that pools.
void Scheduler::CommitPooled(Sequence& sequence,
                             const PlanRow& row,
                             std::span<const float> states,
                             Time now) {
  ActiveRequest& active = *sequence.request;
  sequence.computed += row.count;
  totals_.prompt_tokens += row.count;
  const size_t rows = static_cast<size_t>(row.scored) + static_cast<size_t>(row.samples);
  for (size_t i = 0; i < rows; ++i) {
    Pool(active.request.pooling,
         states.subspan(i * states.size() / rows, states.size() / rows),
         active.pooled);
  }
  StoreFullBlocks(sequence);
  ReleaseSlidBlocks(sequence);
  if (row.samples == 0) return;
  if (!FinishPooling(active.request.pooling, active.request.prompt_length, active.pooled)) {
    return FailAndForget(active,
                         MakeStatus(StatusCode::kInternal,
                                    "the model gives no embedding: its hidden states have numbers "
                                    "that are not finite"));
  }
  active.times.prefill = now - active.first_step;
  const Request& request = active.request;
  outcomes_.tokens.push_back({.id = request.id,
                              .epoch = request.epoch,
                              .token = {.token = 0, .logprob = 0, .top = {}},
                              .finish = FinishReason::kLength,
                              .cached_tokens = active.times.cached_tokens,
                              .pooled = std::move(active.pooled)});
  Finish(sequence);
}

// Fails one request: its grammar allows no token at index `length`, or its activations or the
// weights are bad. The device works, and all other requests continue.
void Scheduler::FailWithoutToken(const Sequence& sequence, int32_t length) {
  ActiveRequest& active = *sequence.request;
  std::erase_if(store_later_, [&](const Sequence* stored) { return stored->request == &active; });
  if (const SequenceMask* mask = sequence.mask.get(); mask != nullptr) {
    const auto output = static_cast<size_t>(length - active.request.prompt_length);
    const bool computed = mask->After(output).WaitUntil(Time());
    if (computed && !mask->FailureAfter(output).ok()) {
      return Fail(active, mask->FailureAfter(output));
    }
  }
  FailAndForget(active,
                MakeStatus(StatusCode::kInternal,
                           "the model gives no token: all {} logits are NaN or -inf",
                           options_.limits.vocabulary));
}

// A request that found the KV of this one in the prefix cache would fail as well.
void Scheduler::FailAndForget(ActiveRequest& active, const Status& status) {
  for (const Sequence& one : active.sequences) cache_.Forget(one.table);
  Fail(active, status);
}

void Scheduler::Abort(const Status& status) {
  std::set<ActiveRequest*> failed;
  for (size_t i = 0; i < steps_.size(); ++i) {
    for (const PlanRow& row : steps_[i].plan.rows) {
      row.sequence->under_way = 0;
      if (row.sequence->state == SequenceState::kRunning) failed.insert(row.sequence->request);
    }
  }
  for (ActiveRequest* active : failed) Fail(*active, status);
  Reap();
  while (!steps_.empty()) steps_.Pop().Clear();
}

void Scheduler::StoreBlocks() {
  for (Sequence* const sequence : store_later_) {
    StoreFullBlocks(*sequence);
    ReleaseSlidBlocks(*sequence);
  }
  store_later_.clear();
}

// Enters full blocks into the prefix cache; a full block never changes again. While a plan with the
// sequence is under way, it may read the blocks of the table, so the table does not adopt others.
void Scheduler::StoreFullBlocks(Sequence& sequence) {
  const int32_t block_tokens = cache_.block_tokens();
  const int32_t full = sequence.computed / block_tokens;
  if (!cache_.prefix_caching() || sequence.stored >= full) return;
  sequence.request->hasher.Extend(
      std::span(sequence.tokens).first(static_cast<size_t>(full) * block_tokens), sequence.hashes);
  while (sequence.stored < full && !sequence.chain_broken) {
    const int32_t index = sequence.stored;
    const auto entry =
        cache_.Store(sequence.table,
                     index,
                     sequence.hashes[index],
                     sequence.chain,
                     std::span<const TokenId>(sequence.tokens)
                         .subspan(static_cast<size_t>(index) * block_tokens, block_tokens),
                     /*adopt=*/sequence.under_way == 0);
    sequence.chain_broken = !entry.has_value();
    if (!entry) return;
    sequence.chain = *entry;
    ++sequence.stored;
  }
}

// Returns as a chunk the blocks of a kPrefill request that are final when `computed` of its tokens
// are computed, except those of earlier chunks. Leases to the hand-off what it sends of them: the
// blocks that the first token after the prompt reads.
std::optional<Outcomes::Chunk> Scheduler::LeaseChunk(const Sequence& sequence,
                                                     int32_t computed,
                                                     bool last) {
  ActiveRequest& active = *sequence.request;
  if (active.request.kind != RequestKind::kPrefill || active.kv_released) return std::nullopt;
  const int32_t from = active.leased_blocks;
  const int32_t to = last ? sequence.table.size() : computed / cache_.block_tokens();
  if (to <= from && !last) return std::nullopt;
  Lease& lease = handoffs_.try_emplace(active.key(), Lease(cache_)).first->second;
  for (int32_t group = 0; group < cache_.groups(); ++group) {
    if (from == 0) lease.Skip(group, cache_.FirstKept(group, sequence.length()));
  }
  lease.Append(sequence.table, to);
  active.leased_blocks = to;
  const auto state = last ? sequence.table.state() : std::span<const BlockId>();
  if (!state.empty()) lease.TakeState(state);
  return Outcomes::Chunk{.id = active.request.id,
                         .epoch = active.request.epoch,
                         .first_index = from,
                         .groups = cache_.groups(),
                         .blocks = sequence.table.Entries(from, to),
                         .state = {state.begin(), state.end()},
                         .last = last};
}

void Scheduler::TakeFirstTokens(ActiveRequest& active, std::span<SampledToken> tokens, bool emit) {
  Sequence& leader = active.sequences[0];
  if (active.request.kind == RequestKind::kPrefill) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      FinishReason finish = FinishReasonOf(active, tokens[i].token, leader.length());
      if (finish == FinishReason::kNone) finish = FinishReason::kHandedOff;
      Emit(active, static_cast<int32_t>(i), leader.length(), std::move(tokens[i]), finish);
    }
    return Finish(leader);
  }
  Fork(active);
  const int32_t length = leader.length();
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (active.stopped.contains(static_cast<int32_t>(i))) {
      Finish(active.sequences[i]);
    } else {
      TakeToken(active.sequences[i], length, std::move(tokens[i]), emit);
    }
  }
}

// The other samples start with the leader's blocks. A sequence that writes into a shared block
// copies it first.
void Scheduler::Fork(ActiveRequest& active) {
  Sequence& leader = active.sequences[0];
  active.forked = true;
  active.live = active.request.samples;
  const int32_t shared = SharedBlocks(leader.length());
  for (int32_t i = 1; i < active.request.samples; ++i) {
    Sequence& sequence = active.sequences.emplace_back();
    sequence.request = &active;
    sequence.index = i;
    sequence.rank = leader.rank;
    sequence.rank.sample = i;
    sequence.tokens = leader.tokens;
    sequence.computed = leader.computed;
    sequence.table = leader.table.Share(leader.table.size());
    if (has_states()) sequence.table.TakeState(leader.table.state());
    sequence.hashes = leader.hashes;
    sequence.stored = leader.stored;
    sequence.chain = leader.chain;
    sequence.chain_broken = leader.chain_broken;
    sequence.slots = 1;
    if (never_evicts()) sequence.promised = OwnWorstBlocks(active) - (slides() ? 0 : shared);
    leader.slots -= sequence.slots;
    leader.promised -= sequence.promised;
    Run(sequence);
  }
}

// Whether `token` at index `length` ends its sequence.
FinishReason Scheduler::FinishReasonOf(const ActiveRequest& active,
                                       TokenId token,
                                       int32_t length) const {
  const Request& request = active.request;
  const bool may_stop = length - request.prompt_length >= request.min_tokens;
  if (may_stop && std::ranges::count(request.stop_tokens, token) > 0) return FinishReason::kStop;
  return length + 1 >= active.longest ? FinishReason::kLength : FinishReason::kNone;
}

// Appends `token` at `index`, which replaces a foreseen token (ChosenBefore) if there is one.
void Scheduler::TakeToken(Sequence& sequence, int32_t index, SampledToken&& token, bool emit) {
  const TokenId id = token.token;
  const FinishReason finish = FinishReasonOf(*sequence.request, id, index);
  if (emit) Emit(*sequence.request, sequence.index, index, std::move(token), finish);
  sequence.tokens.resize(index);
  sequence.tokens.push_back(id);
  if (finish == FinishReason::kNone) return;
  StoreFullBlocks(sequence);
  Finish(sequence);
}

void Scheduler::Emit(ActiveRequest& active,
                     int32_t sample,
                     int32_t length,
                     SampledToken&& token,
                     FinishReason finish) {
  const Request& request = active.request;
  outcomes_.tokens.push_back({request.id,
                              request.epoch,
                              request.first_sample + sample,
                              length - request.prompt_length,
                              std::move(token),
                              finish,
                              length == request.prompt_length ? active.times.cached_tokens : 0,
                              std::exchange(active.prompt_logprobs, {})});
  ++totals_.output_tokens;
}

}  // namespace baton
