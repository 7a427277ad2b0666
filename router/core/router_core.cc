#include "router/core/router_core.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "common/base/retry_after.h"
#include "router/request_error.h"

namespace baton::router {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(20);

}  // namespace

RouterCore::RouterCore(const CoreOptions& options)
    : options_(options),
      index_(options.index_capacity),
      placement_(options_, identity_, book_, index_),
      replays_(options_, book_, placement_.pairs()) {}

RouterCore::~RouterCore() = default;

// ---- workers

// `old`: the slot of a joined worker with the same id; kNoWorker: there is none.
Status RouterCore::CheckJoin(const WorkerInfo& info, WorkerSlot old) const {
  BATON_RETURN_IF_ERROR(CheckModel(info, options_.model));
  BATON_RETURN_IF_ERROR(CheckSecret(info, options_.hash_secret));
  const size_t itself = old == kNoWorker ? 0 : 1;
  if (identity_.has_value() && book_.slots().size() > itself)
    BATON_RETURN_IF_ERROR(CheckFit(info, *identity_));
  if (old == kNoWorker) return OkStatus();
  const WorkerRecord& known = book_.record(old);
  if (known.info.boot == info.boot || now_ - known.last_heard >= options_.suspect_after) {
    return OkStatus();
  }
  return MakeStatus(StatusCode::kAlreadyExists,
                    "a worker with worker_id {} is already live in this cluster, at {}; every "
                    "worker needs its own worker_id",
                    info.id,
                    known.info.address);
}

StatusOr<WorkerSlot> RouterCore::Join(WorkerInfo info, Time now) {
  now_ = now;
  const WorkerSlot old = book_.Find(info.id);
  BATON_RETURN_IF_ERROR(CheckJoin(info, old));
  // The worker opened a new stream, or its process restarted, before the end of the old stream.
  if (old != kNoWorker) Leave(old, now);
  const ClusterIdentity its{options_.model.name.empty() ? info.model : options_.model.name,
                            info.fingerprint,
                            info.kv_layout,
                            info.block_tokens,
                            info.window,
                            info.context_length,
                            info.vocabulary,
                            info.weights};
  BATON_ASSIGN_OR_RETURN(const WorkerSlot slot, book_.Add(std::move(info), now));
  if (book_.slots().size() == 1 || !identity_.has_value()) identity_ = its;
  refused_joins_.Forget(book_.record(slot).info.id, book_.record(slot).info.address);
  index_.AddWorker(slot);
  Send(slot, SnapshotCommand{});
  AnnouncePeers(slot);
  WakeUnplaced(book_.record(slot).info.boot);
  return slot;
}

// Lets prefill workers connect to decode workers now, so that no request has to wait for the
// connection.
void RouterCore::AnnouncePeers(WorkerSlot slot) {
  const WorkerInfo& newcomer = book_.record(slot).info;
  for (const WorkerSlot other : book_.slots()) {
    if (other == slot) continue;
    const WorkerInfo& known = book_.record(other).info;
    if (newcomer.can_prefill && known.can_decode) {
      Send(slot, ConnectCommand{placement_.PeerOf(other)});
    }
    if (known.can_prefill && newcomer.can_decode) {
      Send(other, ConnectCommand{placement_.PeerOf(slot)});
    }
  }
}

void RouterCore::OnReport(WorkerSlot slot, const WorkerReport& report, Time now) {
  now_ = now;
  if (!book_.Has(slot)) return;
  book_.Touch(slot, now);
  if (report.load.has_value()) book_.OnHeartbeat(slot, *report.load, now);
  if (report.drain || (report.load.has_value() && report.load->draining)) {
    book_.SetState(slot, WorkerState::kDraining);
  }
  Revive(slot);
  for (const HandoffReport& handoff : report.handoffs) {
    const bool full = handoff.outcome == HandoffReport::Outcome::kRefused &&
                      handoff.status.code() == StatusCode::kResourceExhausted;
    if (full) DropReplays("a client's request needs the worker's KV memory");
    With(handoff.id, [&](RequestMachine& m) {
      placement_.LearnTransfer(handoff, static_cast<int64_t>(m.spec().prompt.size()));
      m.OnHandoff(slot, handoff, now);
    });
  }
  for (const TokenOutput& token : report.tokens) {
    With(token.id, [&](RequestMachine& m) { m.OnToken(slot, token, now); });
  }
  for (const FinishedReport& finished : report.finished) {
    book_.Release(slot, finished.id, finished.epoch);
    With(finished.id, [&](RequestMachine& m) { m.OnFinished(slot, finished, now); });
  }
  for (const FailedReport& failed : report.failed) {
    book_.Release(slot, failed.id, failed.epoch);
    With(failed.id, [&](RequestMachine& m) { m.OnFailed(slot, failed, now); });
  }
  FeedIndex(slot, report);
}

void RouterCore::FeedIndex(WorkerSlot slot, const WorkerReport& report) {
  bool ask = false;
  for (const CacheEvent& event : report.cache_events) {
    ask |= index_.Apply(slot, event) == PrefixIndex::Feed::kNeedsSnapshot;
  }
  if (report.load.has_value()) {
    ask |= index_.CheckDigest(slot, report.load->digest, report.load->digest_sequence) ==
           PrefixIndex::Feed::kNeedsSnapshot;
  }
  if (ask) Send(slot, SnapshotCommand{});
}

// A suspect or lost worker that sends again becomes ready. The requests that a lost worker had were
// dispatched elsewhere.
void RouterCore::Revive(WorkerSlot slot) {
  const WorkerState state = book_.record(slot).state;
  if (state != WorkerState::kSuspect && state != WorkerState::kLost) return;
  book_.SetState(slot, WorkerState::kReady);
  if (state == WorkerState::kLost) {
    index_.AddWorker(slot);
    Send(slot, SnapshotCommand{});
  }
  WakeUnplaced(book_.record(slot).info.boot);
}

void RouterCore::Leave(WorkerSlot slot, Time now) {
  now_ = now;
  if (!book_.Has(slot)) return;
  const bool drained = book_.record(slot).state == WorkerState::kDraining;
  book_.SetState(slot, WorkerState::kLost);
  WorkerLost(slot);
  book_.Remove(slot, drained, now);
  placement_.pairs().Forget(slot);
}

void RouterCore::WorkerLost(WorkerSlot slot) {
  index_.RemoveWorker(slot);
  std::vector<RequestId> hit;
  for (const auto& [id, live] : live_) {
    if (live.machine->Uses(slot)) hit.push_back(id);
  }
  std::sort(hit.begin(), hit.end());
  for (const RequestId id : hit) {
    With(id, [&](RequestMachine& m) { m.OnWorkerLost(slot, now_); });
  }
  WakeUnplacedPrompts();
}

// What only prefill workers serve does not wait when the last one is lost.
void RouterCore::WakeUnplacedPrompts() {
  std::vector<RequestId> waiting;
  for (const auto& [id, live] : live_) {
    const RequestMachine& machine = *live.machine;
    if (machine.unplaced() && machine.spec().ends_with_prompt()) waiting.push_back(id);
  }
  std::ranges::sort(waiting);
  for (const RequestId id : waiting) With(id, [&](RequestMachine& m) { m.OnTime(now_); });
}

Status RouterCore::Drain(const WorkerId& id, bool keep, Time now) {
  now_ = now;
  const WorkerSlot slot = book_.Find(id);
  if (slot == kNoWorker) {
    return MakeStatus(
        StatusCode::kNotFound, "no worker named {} has joined this router", Shown(id.value()));
  }
  book_.SetState(slot, WorkerState::kDraining);
  Send(slot, DrainWorkerCommand{keep});
  return OkStatus();
}

// ---- requests

template <class F>
void RouterCore::With(RequestId id, F&& call) {
  const auto it = live_.find(id);
  if (it == live_.end()) return;
  RequestMachine& machine = *it->second.machine;
  call(machine);
  TakeReplayActions();
  if (it->second.wake != kNever) wakes_.erase({it->second.wake, id});
  NoteSuspect(id, machine);
  if (machine.done()) {
    const Live ended = std::move(it->second);
    live_.erase(it);
    OnEnd(ended);
    return;
  }
  it->second.wake = machine.next_wake();
  if (it->second.wake != kNever) wakes_.insert({it->second.wake, id});
}

void RouterCore::OnEnd(const Live& live) {
  const RequestMachine& machine = *live.machine;
  if (machine.spec().replay) return replays_.OnReplayEnd(machine, actions_.replays);
  if (machine.has_token()) times_.Add(now_ - live.since);
  if (!machine.spec().ends_with_prompt()) {
    replays_.OnRequestEnd(machine, now_, actions_.replays);
  }
}

// ---- replays

// Passes on the commands of replays. Their events have no receiver.
void RouterCore::TakeReplayActions() {
  const auto append = [](auto& from, auto& to) {
    std::move(from.begin(), from.end(), std::back_inserter(to));
    from.clear();
  };
  append(replay_actions_.commands, actions_.commands);
  append(replay_actions_.pair_changes, actions_.pair_changes);
  replay_actions_.events.clear();
}

int64_t RouterCore::ClientRequests() const {
  return static_cast<int64_t>(live_.size() - replays_.running().size());
}

// Starts replays while no client waits, and drops the running ones when a client's request finds no
// worker.
void RouterCore::StartReplays() {
  if (replays_.idle()) return;
  bool waits = false;
  bool unplaced = false;
  for (const auto& [id, live] : live_) {
    if (live.machine->spec().replay) continue;
    waits |= !live.machine->has_token();
    unplaced |= live.machine->unplaced();
  }
  if (unplaced) DropReplays("a client's request waits for a worker");
  while (const auto spec = replays_.Next(waits, now_, actions_.replays)) Start(spec);
}

void RouterCore::DropReplays(std::string_view why) {
  for (const RequestId id : replays_.running()) {
    Cancel(id, MakeStatus(StatusCode::kResourceExhausted, "the replay is dropped: {}", why), now_);
  }
}

void RouterCore::NoteSuspect(RequestId id, const RequestMachine& machine) {
  suspect_left_ |=
      placement_.SetSuspect(id, machine.suspect() ? machine.workers() : std::vector<WorkerSlot>());
}

// Lets the oldest suspect that waits for a worker without another suspect try again.
void RouterCore::WakeSuspect() {
  std::pair<Time, RequestId> oldest = {kNever, {}};
  for (const auto& [id, live] : live_) {
    if (live.machine->waits_for_suspect()) oldest = std::min(oldest, {live.since, id});
  }
  if (oldest.first == kNever) return;
  With(oldest.second, [&](RequestMachine& m) { m.OnSuspectLeft(now_); });
}

void RouterCore::Send(WorkerSlot slot, WorkerCommand command) {
  actions_.commands.emplace_back(slot, std::move(command));
}

void RouterCore::Submit(std::shared_ptr<const RequestSpec> spec, Time now) {
  now_ = now;
  const RequestId id = spec->id;
  const int64_t present = ClientRequests();
  if (present >= options_.max_requests) {
    Status full = MakeStatus(StatusCode::kResourceExhausted,
                             "{} requests wait or run; the limit (max_requests) is {}",
                             present,
                             options_.max_requests);
    const auto wait = times_.UntilNextEnd(present);
    if (wait.has_value()) full = WithRetryAfter(full, *wait);
    actions_.events.emplace_back(id, Outcome{full, true, {}});
    return;
  }
  Start(std::move(spec));
}

void RouterCore::Start(std::shared_ptr<const RequestSpec> spec) {
  const RequestId id = spec->id;
  const auto [live, is_new] = live_.try_emplace(id);
  if (!is_new) return;
  live->second.since = now_;
  CoreActions& actions = spec->replay ? replay_actions_ : actions_;
  live->second.machine =
      std::make_unique<RequestMachine>(std::move(spec), options_.retry, placement_, actions);
  With(id, [&](RequestMachine& m) { m.Start(now_); });
}

void RouterCore::StopSample(RequestId id, int32_t sample, Time now) {
  now_ = now;
  With(id, [&](RequestMachine& m) { m.StopSample(sample, now); });
}

void RouterCore::Cancel(RequestId id, const Status& why, Time now) {
  now_ = now;
  With(id, [&](RequestMachine& m) { m.Cancel(why, now); });
}

void RouterCore::CancelAll(const Status& why, Time now) {
  std::vector<RequestId> all;
  for (const auto& [id, live] : live_) all.push_back(id);
  for (const RequestId id : all) Cancel(id, why, now);
}

void RouterCore::ResetCaches(Time now) {
  now_ = now;
  for (const WorkerSlot slot : book_.slots()) {
    if (book_.record(slot).state != WorkerState::kLost) {
      index_.RemoveWorker(slot);
      index_.AddWorker(slot);
    }
    Send(slot, SnapshotCommand{.clear = true});
  }
}

// Retries the requests that wait for a worker, because the process `back` joined or revived.
void RouterCore::WakeUnplaced(BootId back) {
  std::vector<RequestId> waiting;
  for (const auto& [id, live] : live_) {
    live.machine->OnWorkerBack(back, now_);
    NoteSuspect(id, *live.machine);
    if (live.machine->unplaced()) waiting.push_back(id);
  }
  std::sort(waiting.begin(), waiting.end());
  for (const RequestId id : waiting) {
    With(id, [&](RequestMachine& m) { m.OnTime(now_); });
  }
}

void RouterCore::Tick(Time now) {
  now_ = now;
  if (std::exchange(suspect_left_, false)) WakeSuspect();
  while (!wakes_.empty() && wakes_.begin()->first <= now) {
    With(wakes_.begin()->second, [&](RequestMachine& m) { m.OnTime(now); });
  }
  if (now < next_tick_) return;
  next_tick_ = now + kTick;
  index_.Sweep(now);
  WatchForStall();
  StartReplays();
  const std::vector<WorkerSlot> slots = book_.slots();
  // If this process was stopped for a while (a paused machine), it could not receive any message:
  // treats all workers as heard now.
  if (last_tick_ != kNever && now - last_tick_ >= options_.suspect_after / 2) {
    for (const WorkerSlot slot : slots) book_.Touch(slot, now);
  }
  last_tick_ = now;
  for (const WorkerSlot slot : slots) {
    const WorkerRecord& worker = book_.record(slot);
    const Duration silent = now - worker.last_heard;
    if (worker.state == WorkerState::kLost || silent < options_.suspect_after) continue;
    if (silent < options_.lost_after) {
      if (worker.state == WorkerState::kReady) book_.SetState(slot, WorkerState::kSuspect);
      continue;
    }
    book_.SetState(slot, WorkerState::kLost);
    WorkerLost(slot);
  }
}

void RouterCore::WatchForStall() {
  bool runs = false;
  int64_t progress = 0;
  for (const WorkerSlot slot : book_.slots()) {
    const WorkerRecord& worker = book_.record(slot);
    const EngineLoad& engine = worker.load.engine;
    runs |= engine.running > 0 && worker.state != WorkerState::kLost;
    progress += engine.prompt_tokens + engine.output_tokens;
  }
  const auto change = stall_.Observe(ClientRequests() > 0, runs, progress, now_);
  if (change != StallWatch::Change::kNone) actions_.stall = change;
}

Time RouterCore::next_wake() const {
  if (suspect_left_) return now_;
  return wakes_.empty() ? next_tick_ : std::min(next_tick_, wakes_.begin()->first);
}

CoreCounts RouterCore::Counts() const {
  CoreCounts counts;
  for (const auto& [id, live] : live_) {
    if (live.machine->spec().replay) continue;
    ++(live.machine->has_token() ? counts.running : counts.waiting);
  }
  counts.index_entries = static_cast<int64_t>(index_.size());
  return counts;
}

DecodeArenas RouterCore::decode_arenas() const {
  DecodeArenas arenas;
  for (const WorkerSlot slot : book_.slots()) {
    const WorkerInfo& info = book_.record(slot).info;
    if (!info.can_decode) continue;
    arenas.block_tokens = std::max(1, info.block_tokens);  // CheckFit: the same for all workers
    arenas.blocks.push_back(info.blocks);
  }
  return arenas;
}

}  // namespace baton::router
