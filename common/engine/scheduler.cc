#include "common/engine/scheduler.h"

#include <algorithm>

#include "common/base/check.h"

namespace baton {
namespace {

// Output tokens that fit behind a prompt before the sequence's array must grow.
constexpr size_t kReservedOutput = 256;

// Measured (common/kvcache/README.md).
constexpr int32_t kMaxCheckpointTokens = 2048;

// The tokens between checkpoints of states, a multiple of the tokens of a block. By default a
// checkpoint takes as many blocks as the KV of the tokens since the one before, so that the prefix
// cache keeps at least half as many tokens as without states, unless the state is larger than the
// KV of kMaxCheckpointTokens.
int32_t CheckpointTokens(int32_t option, const KvCache& cache) {
  const int32_t automatic =
      std::min(cache.state_blocks() / std::max(cache.groups(), 1) * cache.block_tokens(),
               kMaxCheckpointTokens);
  const int32_t tokens = option > 0 ? option : automatic;
  return std::max(tokens / cache.block_tokens(), 1) * cache.block_tokens();
}

}  // namespace

Scheduler::Scheduler(const Options& options, KvCache& cache)
    : options_(options),
      slot_limit_(std::min(options.engine.max_sequences, options.engine.max_step_tokens)),
      ordering_(options.engine.policy),
      cache_(cache),
      room_(cache.windows(),
            cache.block_tokens(),
            cache.total(),
            options.engine.max_step_tokens,
            cache.state_blocks()),
      checkpoint_tokens_(CheckpointTokens(options.engine.state_checkpoint_tokens, cache)) {}

void Scheduler::set_step_time(const StepTimeModel& step_time) {
  step_time_ = step_time;
  const StepTimeModel::Fit& fit = step_time.fit();
  token_time_ = FromSeconds((fit.base_ms + std::max(fit.decode_ms, fit.prompt_token_ms)) / 1e3);
}

void Scheduler::Add(Request request, Time now, Constraint constraint) {
  const RequestKey key{request.id, request.epoch};
  if (active_.contains(key)) return;
  if (handoffs_.contains(key)) {
    return Refuse(key,
                  MakeStatus(StatusCode::kAlreadyExists,
                             "request {} epoch {} has ended and its KV is not released yet",
                             request.id,
                             request.epoch));
  }
  if (Status status = CheckRequest(request, options_.limits); !status.ok()) {
    return Refuse(key, status);
  }
  if (request.arrival == Time{}) request.arrival = now;
  if (request.kind == RequestKind::kServe) request.peer_first = false;  // it has no peer

  const EngineOptions& engine = options_.engine;
  const HashDomain domain{engine.hash_secret, options_.model_fingerprint, request.cache_salt};
  auto active = std::make_unique<ActiveRequest>(BlockHasher(cache_.block_tokens(), domain));
  active->serial = ++last_serial_;
  active->grammar = std::move(constraint.grammar);
  active->longest = static_cast<int32_t>(std::min<int64_t>(
      int64_t{request.prompt_length} + request.max_tokens, options_.limits.context_length));
  for (int32_t i = 0; i < request.samples; ++i) {
    active->sampling.push_back(request.sampling);
    active->sampling.back().seed = SampleSeed(request.sampling.seed, request.first_sample + i);
  }
  // Resumed output comes after the first token, with which the logprobs came.
  const bool fresh = std::cmp_equal(request.tokens.size(), request.prompt_length);
  if (request.prompt_logprobs >= 0 && fresh && request.kind != RequestKind::kDecode) {
    active->prompt_sampling.temperature = 0;
    active->prompt_sampling.top_logprobs = request.prompt_logprobs;
    active->to_score = request.prompt_length - 1;
  }
  if (request.pooling == Pooling::kMean) active->to_score = request.prompt_length - 1;
  if (request.pooling == Pooling::kFirst) active->to_score = std::min(1, request.prompt_length - 1);
  active->sequences.reserve(request.samples);
  Sequence& leader = active->sequences.emplace_back();
  leader.request = active.get();
  leader.mask = std::move(constraint.first_mask);
  leader.tokens.reserve(request.tokens.size() + kReservedOutput);
  leader.tokens.assign(request.tokens.begin(), request.tokens.end());
  request.tokens = {};
  leader.table = Lease(cache_);
  active->live = 1;
  active->request = std::move(request);
  if (Status status = CheckRoom(*active); !status.ok()) return Refuse(key, status);
  if (active->request.kind != RequestKind::kPrefill) {
    active->longest = static_cast<int32_t>(std::min<int64_t>(active->longest, room_.max_tokens()));
  }

  if (cache_.prefix_caching()) active->hasher.Extend(leader.tokens, leader.hashes);
  int64_t uncached = leader.length();
  if (engine.policy == SchedulingPolicy::kShortestPrefill ||
      engine.policy == SchedulingPolicy::kDeadline) {
    uncached -= int64_t{FindPrefix(leader).count} * cache_.block_tokens();
  }
  leader.rank = {ordering_.VirtualTime(active->request, uncached, token_time_), active->serial, 0};
  active->added = now;
  if (active->held()) {
    CountHeld(*active, 1);
  } else {
    BoundWait(*active, now);
    Enqueue(leader);
  }
  next_expiry_ = std::min(next_expiry_, active->expiry());
  active_.emplace(key, std::move(active));
}

void Scheduler::PeerReady(RequestKey key, Time now) {
  const auto found = active_.find(key);
  if (found == active_.end() || !found->second->held()) return;
  ActiveRequest& active = *found->second;
  EndHold(active);
  BoundWait(active, now);
  next_expiry_ = std::min(next_expiry_, active.expiry());
  Enqueue(active.sequences[0]);
}

// Bounds the wait of a reservation by the age of the request. So a request that is refused again
// and again is refused ever more rarely, and keeps its place in the queue meanwhile: requests that
// arrived later pass it only between a refusal and the next dispatch, at most log2(deadline / wait)
// times.
void Scheduler::BoundWait(ActiveRequest& active, Time now) const {
  if (!active.awaits_reservation()) return;
  const Duration age = now - active.request.arrival + active.request.age;
  active.reserve_by = now + std::max(options_.engine.max_reservation_wait, age);
}

// A held request counts as waiting, and its prompt as work of this engine or of its arena, so that
// routers see the load that was sent here.
void Scheduler::CountHeld(const ActiveRequest& active, int32_t requests) {
  held_ += requests;
  if (active.awaits_reservation()) {
    expected_blocks_ += requests * room_.Received(active.sequences[0].length());
  } else {
    waiting_tokens_ += int64_t{requests} * active.sequences[0].length();
  }
}

void Scheduler::EndHold(ActiveRequest& active) {
  CountHeld(active, -1);
  active.request.peer_first = false;
}

Status Scheduler::CheckRoom(const ActiveRequest& active) const {
  const int32_t most = options_.engine.max_waiting;
  if (std::cmp_greater_equal(waiting_.size() + held_, most)) {
    return MakeStatus(StatusCode::kResourceExhausted,
                      "the queue is full: {} sequences are waiting (max_waiting)",
                      most);
  }
  const int32_t need = MinBlocks(active);
  if (need <= cache_.total()) return OkStatus();
  if (!never_evicts()) {
    return MakeStatus(StatusCode::kOutOfRange,
                      "{} tokens of prompt and one of output need {} KV blocks of {} tokens; there "
                      "are {}",
                      active.sequences[0].length(),
                      need,
                      cache_.block_tokens(),
                      cache_.total());
  }
  return MakeStatus(StatusCode::kOutOfRange,
                    "{} tokens of prompt and up to {} in all need {} KV blocks of {} tokens; "
                    "there are {}",
                    active.sequences[0].length(),
                    active.longest,
                    need,
                    cache_.block_tokens(),
                    cache_.total());
}

void Scheduler::Activate(RequestKey key, std::vector<SampledToken> first_tokens, Time now) {
  const auto found = active_.find(key);
  if (found == active_.end()) return;
  ActiveRequest& active = *found->second;
  Sequence& leader = active.sequences[0];
  if (leader.state != SequenceState::kAwaitingKv) return;
  const auto valid = [&](const SampledToken& first) {
    return first.token >= 0 && first.token < options_.limits.vocabulary;
  };
  if (std::cmp_not_equal(first_tokens.size(), active.request.samples) ||
      !std::ranges::all_of(first_tokens, valid)) {
    Fail(active,
         InvalidArgument("received {} first tokens for {} samples, or one outside the vocabulary",
                         first_tokens.size(),
                         active.request.samples));
    return Reap();
  }
  active.activated = true;
  active.started = true;
  // No peer writes the state any more, and the next row does.
  if (const auto lease = handoffs_.find(key); lease != handoffs_.end()) lease->second.SplitState();
  active.first_step = now;
  std::erase(awaiting_kv_, &leader);
  leader.computed = leader.length();
  Run(leader);
  // The blocks enter the prefix cache after the first step: a long prompt has many blocks, and the
  // second token must not wait for them.
  TakeFirstTokens(active, first_tokens, /*emit=*/false);
  Reap();
}

void Scheduler::Cancel(RequestKey key) {
  const auto found = active_.find(key);
  if (found == active_.end()) return;
  Fail(*found->second, MakeStatus(StatusCode::kCancelled, "the request was cancelled"));
  Reap();
}

void Scheduler::StopSample(RequestKey key, int32_t sample) {
  const auto found = active_.find(key);
  if (found == active_.end()) return;
  ActiveRequest& active = *found->second;
  // `sample` comes from the network and may be any number.
  const int64_t distance = int64_t{sample} - active.request.first_sample;
  if (distance < 0 || distance >= active.request.samples) return;
  const auto index = static_cast<int32_t>(distance);
  if (!active.forked) {
    active.stopped.insert(index);
    return;
  }
  Sequence& sequence = active.sequences[index];
  if (sequence.state == SequenceState::kFinished) return;
  Finish(sequence);
  Reap();
}

void Scheduler::ReleaseKv(RequestKey key) {
  handoffs_.erase(key);
  ForgetChunks(key);
  if (const auto found = active_.find(key); found != active_.end()) {
    found->second->kv_released = true;
  }
}

void Scheduler::FailAll(const Status& status) {
  for (auto& [key, active] : active_) Fail(*active, status);
  Reap();
}

void Scheduler::Refuse(const RequestKey& key, const Status& status) {
  outcomes_.failures.push_back({key.first, key.second, status});
}

void Scheduler::Fail(ActiveRequest& active, const Status& status) {
  for (Sequence& sequence : active.sequences) {
    if (sequence.state != SequenceState::kFinished) Drop(sequence);
  }
  ForgetChunks(active.key());
  ended_.push_back(active.key());
  Refuse(active.key(), status);
}

void Scheduler::Finish(Sequence& sequence) {
  ActiveRequest& active = *sequence.request;
  StoreState(sequence);
  Drop(sequence);
  if (--active.live > 0) return;
  ended_.push_back(active.key());
  outcomes_.finished.push_back({active.request.id, active.request.epoch, active.times});
}

// Ends a sequence and releases everything that it holds. Its blocks are released when no plan under
// way may write them any more. Reap must follow.
void Scheduler::Drop(Sequence& sequence) {
  if (sequence.request->held()) {
    EndHold(*sequence.request);
  } else if (sequence.state == SequenceState::kWaiting) {
    Dequeue(sequence);
  }
  if (sequence.state == SequenceState::kAwaitingKv) std::erase(awaiting_kv_, &sequence);
  slots_ -= std::exchange(sequence.slots, 0);
  promised_ -= std::exchange(sequence.promised, 0);
  const std::unique_ptr<Lease> read_state = std::move(sequence.read_state);
  if (!steps_.empty()) {
    if (read_state != nullptr) steps_.newest().ended_leases.push_back(std::move(*read_state));
    steps_.newest().ended_leases.push_back(std::exchange(sequence.table, Lease(cache_)));
  } else {
    sequence.table.Clear();
  }
  sequence.MoveTo(SequenceState::kFinished);
}

// Removes the chunks of a request from the steps under way, because no more of them are reported.
// The hand-off keeps those that the listener knows; it will release them.
void Scheduler::ForgetChunks(const RequestKey& key) {
  auto handoff = handoffs_.find(key);
  for (size_t i = steps_.size(); i > 0; --i) {
    QueuedStep& step = steps_[i - 1];
    std::vector<Outcomes::Chunk>& chunks = step.plan.chunks;
    const auto chunk = std::ranges::find_if(chunks, [&](const auto& one) {
      return RequestKey{one.id, one.epoch} == key;
    });
    if (chunk == chunks.end()) continue;
    if (!step.layers_told && handoff != handoffs_.end()) {
      if (chunk->first_index == 0) {
        handoffs_.erase(handoff);
        handoff = handoffs_.end();
      } else {
        handoff->second = handoff->second.Share(chunk->first_index);
      }
    }
    chunks.erase(chunk);
  }
}

// Removes the requests that ended. Finish and Fail cannot remove them, because plans and queues
// still point to their sequences.
void Scheduler::Reap() {
  std::erase_if(running_, [](const Sequence* sequence) {
    return sequence->state != SequenceState::kRunning;
  });
  for (const RequestKey& key : ended_) {
    auto ended = active_.extract(key);
    if (!steps_.empty()) steps_.newest().ended_requests.push_back(std::move(ended.mapped()));
  }
  ended_.clear();
}

void Scheduler::Enqueue(Sequence& sequence) {
  waiting_.insert(&sequence);
  if (sequence.request->awaits_reservation()) {
    ++waiting_reservations_;
  } else {
    waiting_tokens_ += sequence.length();
  }
}

void Scheduler::Dequeue(Sequence& sequence) {
  waiting_.erase(&sequence);
  if (blocked_ == &sequence) blocked_ = nullptr;
  if (sequence.request->awaits_reservation()) {
    --waiting_reservations_;
  } else {
    waiting_tokens_ -= sequence.length();
  }
}

void Scheduler::Run(Sequence& sequence) {
  sequence.MoveTo(SequenceState::kRunning);
  running_.insert(std::ranges::upper_bound(running_, &sequence, ByRank{}), &sequence);
}

void Scheduler::EndExpired(Time now) {
  if (now < next_expiry_) return;
  next_expiry_ = kNever;
  for (auto& [key, active] : active_) {
    if (active->expiry() > now) {
      next_expiry_ = std::min(next_expiry_, active->expiry());
    } else if (active->request.deadline > now) {
      Fail(*active, NoBlocksFor(*active));
    } else {
      Fail(*active,
           MakeStatus(StatusCode::kDeadlineExceeded,
                      "the deadline passed {:.0f} ms ago; the first sample was {}",
                      ToMillis(now - active->request.deadline),
                      Name(active->sequences[0].state)));
    }
  }
  Reap();
}

Status Scheduler::NoBlocksFor(const ActiveRequest& active) const {
  return MakeStatus(StatusCode::kResourceExhausted,
                    "the prompt needs {} KV blocks; {} of {} are available, and {} reservations "
                    "are waiting",
                    room_.Received(active.sequences[0].length()),
                    cache_.available(),
                    cache_.total(),
                    waiting_reservations_);
}

SchedulerCounts Scheduler::Counts() const {
  SchedulerCounts counts = totals_;
  counts.running = static_cast<int32_t>(running_.size());
  counts.waiting = static_cast<int32_t>(waiting_.size()) + held_;
  counts.expected_blocks = expected_blocks_;
  counts.held = held_;
  counts.awaiting_kv = static_cast<int32_t>(awaiting_kv_.size());
  counts.held_leases = static_cast<int32_t>(handoffs_.size());
  counts.queued_tokens = waiting_tokens_;
  for (const Sequence* sequence : running_) {
    if (sequence->remaining() > 1) counts.queued_tokens += sequence->remaining();
  }
  return counts;
}

}  // namespace baton
