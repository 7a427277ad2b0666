// The part of RequestMachine that handles a worker that fails, refuses a request or is lost.
#include <algorithm>

#include "router/core/request_machine.h"

namespace baton::router {
namespace {

// A request ends after this many failed steps in a row.
constexpr int32_t kMaxFailedSteps = 2;

// A request is served alone after this many failed hand-offs in a row, or when they took this long.
constexpr int32_t kMaxFailedHandoffs = 3;
constexpr Duration kMaxLostToHandoffs = std::chrono::seconds(4);

bool IsLoss(const Status& status) {
  switch (status.code()) {
    case StatusCode::kUnavailable:
    case StatusCode::kCancelled:
    case StatusCode::kAborted:
    case StatusCode::kNotFound:
    case StatusCode::kAlreadyExists:
    case StatusCode::kDeadlineExceeded:
      return true;
    default:
      return false;
  }
}

// Whether a hand-off that ended like this says something about the two workers' connection: not
// when the decode worker is full, or when the request or its time is over.
bool BlamesPair(const Status& handoff) {
  switch (handoff.code()) {
    case StatusCode::kResourceExhausted:
    case StatusCode::kCancelled:
    case StatusCode::kDeadlineExceeded:
    case StatusCode::kNotFound:
    case StatusCode::kAlreadyExists:
    case StatusCode::kOutOfRange:
      return false;
    default:
      return true;
  }
}

}  // namespace

bool RequestMachine::ServesAlone() const {
  return failed_handoffs_ >= kMaxFailedHandoffs || lost_to_handoffs_ >= kMaxLostToHandoffs;
}

// Records that a hand-off was refused or failed. Returns the reason as text for the client.
Status RequestMachine::NoteSetback(const Attempt& attempt,
                                   std::string_view what,
                                   const Status& why,
                                   Time now) {
  const Attempt::DecodePart* decode = attempt.decode();
  if (decode == nullptr) return Annotate(why, fmt::format("the KV hand-off {}", what));
  const WorkerId from = placement_.PeerOf(attempt.prefill()).id;
  const WorkerId to = placement_.PeerOf(decode->worker).id;
  if (BlamesPair(why)) {
    ++failed_handoffs_;
    lost_to_handoffs_ += now - decode->since;
    const FailingPair* pair =
        placement_.pairs().NoteFailed(attempt.prefill(), decode->worker, why, decode->since, now);
    if (pair != nullptr) actions_.pair_changes.push_back({from, to, *pair});
  }
  return Annotate(
      why,
      fmt::format("the KV hand-off from prefill worker {} to decode worker {} {}", from, to, what));
}

void RequestMachine::NoteCommitted(const Attempt& attempt) {
  failed_handoffs_ = 0;
  lost_to_handoffs_ = {};
  const WorkerSlot decode = attempt.decode_worker();
  if (!placement_.pairs().NoteCommitted(attempt.prefill(), decode)) return;
  actions_.pair_changes.push_back(
      {placement_.PeerOf(attempt.prefill()).id, placement_.PeerOf(decode).id, std::nullopt});
}

void RequestMachine::OnHandoffFailed(const Attempt& attempt,
                                     const Status& why,
                                     WorkerSlot culprit,
                                     Time now) {
  const FailureKind kind = IsLoss(why) ? FailureKind::kLoss : FailureKind::kFailure;
  const Status named = NoteSetback(attempt, "failed", why, now);
  FailAttempt(attempt.epoch(), {kind, named, culprit}, now);
}

void RequestMachine::OnRefused(Attempt& attempt, const Status& why, Time now) {
  ++account_.refusals;
  last_setback_ = NoteSetback(attempt, "was refused", why, now);
  // A pinned request has no other worker, and does not wait for this one.
  if (spec_->pinned.has_value()) return End(last_setback_, true);
  const Attempt::DecodePart refused = *attempt.decode();
  Send(refused.worker, CancelCommand{spec_->id, refused.epoch, false});
  placement_.Release(refused.worker, spec_->id, refused.epoch);
  attempt.OnRefused(placement_.PeerOf(refused.worker).boot, now);
  Redirect(attempt, /*after_pause=*/false, now);
}

// Offers the KV that the prefill worker keeps to a decode worker that has not refused it. When all
// have refused, offers it to any, after a pause. When the hand-offs fail again and again, ends the
// attempt, so that the request is served alone.
void RequestMachine::Redirect(Attempt& attempt, bool after_pause, Time now) {
  const auto refusals = static_cast<int32_t>(attempt.refused_by().size());
  const SampleRange& samples = attempt.samples();
  const WorkerSlot prefill = attempt.prefill();
  const auto plan = placement_.PlaceDecode(
      QueryFor(samples, attempt.refused_by(), unable_), prefill, attempt.prefill_holds(), now);
  const WorkerSlot decode = plan.has_value() ? plan->where.decode : kNoWorker;
  if (ServesAlone() || placement_.pairs().Broken(prefill, decode, now)) {
    return FailAttempt(attempt.epoch(), {FailureKind::kLoss, last_setback_, kNoWorker}, now);
  }
  const bool again = std::ranges::count(attempt.refused_by(), placement_.PeerOf(decode).boot) > 0;
  if (decode == kNoWorker || (again && !after_pause))
    return attempt.OnPostponed(now + Backoff(refusals));
  const Epoch epoch(++last_epoch_);
  attempt.OnRedirected({decode, epoch, now});
  placement_.pairs().NoteGiven(prefill, decode, now);
  account_.decode_worker = placement_.PeerOf(decode).id.value();
  if (!plan->decode_first) attempt.OnPrefillFirst();
  const SessionId session = placement_.NewSession();
  Dispatch(attempt, *plan, RequestKind::kDecode, session, now);
  for (int32_t s = samples.first; s < samples.end(); ++s) {
    if (samples_[s].finish == FinishReason::kNone) continue;
    Send(decode, StopSampleCommand{spec_->id, epoch, s});
  }
  Send(attempt.prefill(),
       RedirectCommand{spec_->id,
                       attempt.epoch(),
                       session,
                       epoch,
                       placement_.PeerOf(decode),
                       plan->decode_first});
}

void RequestMachine::OnFailed(WorkerSlot from, const FailedReport& report, Time now) {
  if (report.status.code() == StatusCode::kOutOfRange) return OnUnable(from, report, now);
  Attempt* attempt = ReportedBy(from, report.epoch);
  if (attempt == nullptr) return;
  if (CanSpare(from, *attempt)) {
    placement_.Release(from, spec_->id, attempt->epoch());
    return attempt->OnPrefillGone();
  }
  // After a cancel by the router the attempt is not live and the report is ignored. This worker
  // therefore cancelled the request on its own.
  const bool own_cancel = report.status.code() == StatusCode::kCancelled;
  if (!report.retryable && !own_cancel) return End(report.status, false);
  Failure failure{FailureKind::kFailure, report.status, from};
  if (IsLoss(report.status)) failure.kind = FailureKind::kLoss;
  if (report.status.code() == StatusCode::kInternal) failure.kind = FailureKind::kFailedStep;
  if (own_cancel) {
    failure.why = MakeStatus(StatusCode::kUnavailable,
                             "worker {} cancelled the request on its own: {}",
                             placement_.PeerOf(from).id,
                             Message(report.status));
  }
  FailAttempt(attempt->epoch(), failure, now);
}

// The worker can never hold the request. The report may belong to a dispatch that is cancelled.
void RequestMachine::OnUnable(WorkerSlot from, const FailedReport& report, Time now) {
  if (done_) return;
  const BootId boot = placement_.PeerOf(from).boot;
  if (std::ranges::count(unable_, boot) == 0) unable_.push_back(boot);
  unable_why_ = report.status;
  const Attempt* attempt = ReportedBy(from, report.epoch);
  for (const Attempt& waiting : attempts_) {
    const bool refused = std::ranges::count(waiting.refused_by(), boot) > 0;
    if (refused && waiting.redirect_at() != kNever) attempt = &waiting;
  }
  if (attempt == nullptr) return;
  FailAttempt(attempt->epoch(), {FailureKind::kLoss, report.status, from}, now);
}

void RequestMachine::OnWorkerLost(WorkerSlot slot, Time now) {
  std::vector<Epoch> failed;
  for (Attempt& attempt : attempts_) {
    if (CanSpare(slot, attempt)) {
      attempt.OnPrefillGone();
    } else if (attempt.Uses(slot)) {
      failed.push_back(attempt.epoch());
    }
  }
  const Status why =
      MakeStatus(StatusCode::kUnavailable, "worker {} was lost", placement_.PeerOf(slot).id);
  for (const Epoch epoch : failed) {
    if (!done_) FailAttempt(epoch, {FailureKind::kLostWorker, why, slot}, now);
  }
  if (!done_) CheckComplete(now);
}

void RequestMachine::OnWorkerBack(BootId boot, Time now) {
  const bool before = suspect();
  for (Sample& sample : samples_) {
    std::erase_if(sample.lost, [&](const Peer& peer) { return peer.boot == boot; });
  }
  if (!before || suspect()) return;
  for (Unplaced& group : unplaced_) group.not_before = std::min(group.not_before, now);
}

// Whether the attempt goes on without this worker: the prefill worker, after the hand-off and the
// first token of each sample, which only the prefill worker sends.
bool RequestMachine::CanSpare(WorkerSlot slot, const Attempt& attempt) const {
  if (slot != attempt.prefill() || !attempt.committed()) return false;
  for (int32_t s = attempt.samples().first; s < attempt.samples().end(); ++s) {
    const Sample& sample = samples_[s];
    if (sample.epoch == attempt.epoch() && sample.finish == FinishReason::kNone &&
        sample.tokens.size() <= attempt.resumed()) {
      return false;
    }
  }
  return true;
}

Duration RequestMachine::Backoff(int32_t attempts) const {
  const int32_t doublings = std::clamp(attempts - 1, 0, 16);
  return std::min(limits_.max_backoff, limits_.first_backoff * (int64_t{1} << doublings));
}

// Ends an attempt. Its unfinished samples are dispatched again under new epochs.
void RequestMachine::FailAttempt(Epoch epoch, const Failure& failure, Time now) {
  const Attempt attempt = *Find(epoch);
  std::erase_if(attempts_, [&](const Attempt& a) { return a.epoch() == epoch; });
  EndAttempt(attempt, false);
  if (failure.culprit != kNoWorker) {
    const BootId boot = placement_.PeerOf(failure.culprit).boot;
    if (std::ranges::count(avoid_, boot) == 0) avoid_.push_back(boot);
  }
  last_setback_ = failure.why;

  std::vector<int32_t> open;
  bool fresh = true;  // no sample has a token: one dispatch can serve all of them again
  Record record;
  for (int32_t s = attempt.samples().first; s < attempt.samples().end(); ++s) {
    Sample& sample = samples_[s];
    if (sample.finish != FinishReason::kNone || sample.epoch != epoch) continue;
    sample.early.clear();
    RecordSetback(sample, failure, record);
    open.push_back(s);
    fresh = fresh && sample.tokens.empty();
  }
  if (open.empty()) return CheckComplete(now);
  if (EndAfter(failure, record)) return;
  Time not_before = record.dispatches <= 1 ? now : now + Backoff(record.dispatches - 1);
  if (failure.kind == FailureKind::kLostWorker && suspect()) {
    not_before = std::max(not_before, now + limits_.loss_pause);
  }
  if (fresh && static_cast<int32_t>(open.size()) == attempt.samples().count) {
    unplaced_.push_back({attempt.samples(), now, not_before});
  } else {
    for (const int32_t s : open) unplaced_.push_back({{s, 1}, now, not_before});
  }
  PlaceAll(now);
}

void RequestMachine::RecordSetback(Sample& sample, const Failure& failure, Record& record) {
  const bool failed =
      failure.kind == FailureKind::kFailure || failure.kind == FailureKind::kFailedStep;
  if (failed) ++sample.failures;
  if (failure.kind == FailureKind::kFailedStep) ++sample.failed_steps;
  if (failure.kind == FailureKind::kLostWorker)
    sample.lost.push_back(placement_.PeerOf(failure.culprit));
  record.dispatches = std::max(record.dispatches, sample.dispatches);
  record.failures = std::max(record.failures, sample.failures);
  record.failed_steps = std::max(record.failed_steps, sample.failed_steps);
  if (sample.lost.size() > record.lost.size()) record.lost = sample.lost;
}

// Ends the request when `record` has reached a limit. Returns whether the request has ended.
bool RequestMachine::EndAfter(const Failure& failure, const Record& record) {
  const WorkerId before = failed_step_on_;
  if (failure.kind == FailureKind::kFailedStep)
    failed_step_on_ = placement_.PeerOf(failure.culprit).id;
  const auto losses = static_cast<int32_t>(record.lost.size());
  if (limits_.max_worker_losses > 0 && losses >= limits_.max_worker_losses) {
    std::string names;
    for (const Peer& peer : record.lost) names += fmt::format(" {}", peer.id);
    End(MakeStatus(StatusCode::kInternal,
                   "{} worker processes were lost in a row with this request; it may be the cause "
                   "and is not retried; the workers:{} (max_worker_losses)",
                   losses,
                   names),
        false);
  } else if (record.failed_steps >= kMaxFailedSteps) {
    End(MakeStatus(StatusCode::kInternal,
                   "a step with this request failed on worker {}, then on worker {}; the request "
                   "is not retried: {}",
                   before,
                   failed_step_on_,
                   Message(failure.why)),
        false);
  } else if (record.failures >= limits_.max_attempts) {
    End(MakeStatus(failure.why.code(),
                   "{} (failure {} of {})",
                   Message(failure.why),
                   record.failures,
                   limits_.max_attempts),
        true);
  }
  return done_;
}

// Cancels the unfinished parts of an attempt on its workers and releases their bookings.
void RequestMachine::EndAttempt(const Attempt& attempt, bool complete) {
  const auto end = [&](WorkerSlot slot, Epoch epoch, bool open) {
    if (open) Send(slot, CancelCommand{spec_->id, epoch, complete});
    placement_.Release(slot, spec_->id, epoch);
  };
  end(attempt.prefill(), attempt.epoch(), attempt.prefill_open());
  if (const auto* decode = attempt.decode()) {
    end(decode->worker, decode->epoch, attempt.decode_open());
  }
}

Status RequestMachine::TimeIsOver(Time now) const {
  std::string text = fmt::format("the request's timeout of {:.3f} s has expired",
                                 ToSeconds(spec_->deadline - spec_->arrival));
  const bool no_place = std::ranges::any_of(
      unplaced_, [](const Unplaced& group) { return group.tried || group.waits > 0; });
  if (no_place) text += "; " + placement_.WhyNoPlace(QueryFor({}, avoid_, unable_), now);
  if (!last_setback_.ok()) text += fmt::format("; before that: {}", Message(last_setback_));
  return Status(StatusCode::kDeadlineExceeded, text);
}

}  // namespace baton::router
