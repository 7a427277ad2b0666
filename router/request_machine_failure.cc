// The part of RequestMachine that handles a worker that fails, refuses a request or is lost.
#include <algorithm>

#include "router/request_machine.h"

namespace baton::router {
namespace {

// A request ends after this many failed steps in a row.
constexpr int32_t kMaxFailedSteps = 2;

// A prefill worker cannot reach a decode worker when both bounds have passed. The bound on time
// exists because the address of a new worker may not be known everywhere at once.
constexpr int32_t kTriesToReach = 3;
constexpr Duration kTimeToReach = std::chrono::seconds(5);

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

}  // namespace

RequestMachine::FailureKind RequestMachine::KindOf(const Status& handoff) {
  return IsLoss(handoff) ? FailureKind::kLoss : FailureKind::kFailure;
}

void RequestMachine::OnRefused(RequestHost& host, Attempt& attempt, const Status& why, Time now) {
  ++account_.refusals;
  last_setback_ = why;
  const WorkerSlot decode = attempt.decode;
  const BootId boot = host.PeerOf(decode).boot;
  // A worker that refuses because it is full was reached.
  if (why.code() != StatusCode::kResourceExhausted && !host.HandedOver(attempt.prefill, decode)) {
    host.NoteOutOfReach(attempt.prefill, decode);
    auto known = std::ranges::find(attempt.out_of_reach, boot, &OutOfReach::boot);
    if (known == attempt.out_of_reach.end()) {
      known = attempt.out_of_reach.insert(known, OutOfReach{boot, 0, now});
    }
    ++known->refusals;
    known->given_up = known->refusals >= kTriesToReach && now - known->since >= kTimeToReach;
  }
  host.Send(decode, CancelCommand{spec_->id, attempt.decode_epoch, false});
  host.Release(decode, spec_->id, attempt.decode_epoch);
  attempt.refused_by.push_back(boot);
  attempt.decode = kNoWorker;
  Redirect(host, attempt, now);
}

// Offers the KV that the prefill worker keeps to a decode worker that has not refused it. When all
// have refused, offers it, after a pause, to any that is not given up as unreachable.
void RequestMachine::Redirect(RequestHost& host, Attempt& attempt, Time now) {
  const auto refusals = static_cast<int32_t>(attempt.refused_by.size());
  std::vector<BootId> never = unable_;
  for (const OutOfReach& worker : attempt.out_of_reach) {
    if (worker.given_up) never.push_back(worker.boot);
  }
  const RequestHost::PlaceQuery query{*spec_,
                                      samples_[attempt.first_sample].tokens,
                                      attempt.samples,
                                      attempt.refused_by,
                                      never,
                                      suspect(),
                                      /*again=*/true};
  const WorkerSlot decode = host.PlaceDecode(query, attempt.prefill);
  if (decode == kNoWorker && never.size() > unable_.size()) {
    const Status why = MakeStatus(last_setback_.code(),
                                  "{}; the KV hand-off from prefill worker {} was refused {} times",
                                  Message(last_setback_),
                                  host.PeerOf(attempt.prefill).id,
                                  refusals);
    return FailAttempt(host, attempt.epoch, {FailureKind::kFailure, why, attempt.prefill}, now);
  }
  const bool again = std::ranges::count(attempt.refused_by, host.PeerOf(decode).boot) > 0;
  if (decode == kNoWorker || (again && !attempt.redirect_at.has_value())) {
    attempt.redirect_at = now + Backoff(refusals);
    return;
  }
  attempt.redirect_at.reset();
  attempt.decode = decode;
  attempt.decode_epoch = Epoch(++last_epoch_);
  attempt.decode_finished = false;
  account_.decode_worker = host.PeerOf(decode).id.value();
  const SessionId session = host.NewSession();
  DispatchCommand command = Command(attempt, RequestKind::kDecode, session);
  command.peer = host.PeerOf(attempt.prefill);
  host.Send(decode, std::move(command));
  for (int32_t s = attempt.first_sample; s < attempt.first_sample + attempt.samples; ++s) {
    if (samples_[s].finish == FinishReason::kNone) continue;
    host.Send(decode, StopSampleCommand{spec_->id, attempt.decode_epoch, s});
  }
  host.Send(attempt.prefill,
            RedirectCommand{
                spec_->id, attempt.epoch, session, attempt.decode_epoch, host.PeerOf(decode)});
}

void RequestMachine::OnFailed(RequestHost& host,
                              WorkerSlot from,
                              const FailedReport& report,
                              Time now) {
  if (report.status.code() == StatusCode::kOutOfRange) return OnUnable(host, from, report, now);
  Attempt* attempt = ReportedBy(from, report.epoch);
  if (attempt == nullptr) return;
  if (from == attempt->prefill && attempt->committed && !LacksFirstToken(*attempt)) {
    host.Release(from, spec_->id, attempt->epoch);
    attempt->prefill_finished = true;
    attempt->sender_told = true;
    return;
  }
  // After a cancel by the router the attempt is not live and the report is ignored. This worker
  // therefore cancelled the request on its own.
  const bool own_cancel = report.status.code() == StatusCode::kCancelled;
  if (!report.retryable && !own_cancel) return End(host, report.status, false);
  Failure failure{FailureKind::kFailure, report.status, from};
  if (IsLoss(report.status)) failure.kind = FailureKind::kLoss;
  if (report.status.code() == StatusCode::kInternal) failure.kind = FailureKind::kFailedStep;
  if (own_cancel) {
    failure.why = MakeStatus(StatusCode::kUnavailable,
                             "worker {} cancelled the request on its own: {}",
                             host.PeerOf(from).id,
                             Message(report.status));
  }
  FailAttempt(host, attempt->epoch, failure, now);
}

// The worker can never hold the request. The report may belong to a dispatch that is cancelled.
void RequestMachine::OnUnable(RequestHost& host,
                              WorkerSlot from,
                              const FailedReport& report,
                              Time now) {
  if (done_) return;
  const BootId boot = host.PeerOf(from).boot;
  if (std::ranges::count(unable_, boot) == 0) unable_.push_back(boot);
  unable_why_ = report.status;
  const Attempt* attempt = ReportedBy(from, report.epoch);
  for (const Attempt& waiting : attempts_) {
    const bool refused = std::ranges::count(waiting.refused_by, boot) > 0;
    if (refused && waiting.redirect_at.has_value()) attempt = &waiting;
  }
  if (attempt == nullptr) return;
  FailAttempt(host, attempt->epoch, {FailureKind::kLoss, report.status, from}, now);
}

void RequestMachine::OnWorkerLost(RequestHost& host, WorkerSlot slot, Time now) {
  std::vector<Epoch> failed;
  for (Attempt& attempt : attempts_) {
    if (attempt.prefill == slot && attempt.committed && !LacksFirstToken(attempt)) {
      attempt.prefill_finished = true;
      attempt.sender_told = true;
    } else if (attempt.prefill == slot || attempt.decode == slot) {
      failed.push_back(attempt.epoch);
    }
  }
  const Status why =
      MakeStatus(StatusCode::kUnavailable, "worker {} was lost", host.PeerOf(slot).id);
  for (const Epoch epoch : failed) {
    if (!done_) FailAttempt(host, epoch, {FailureKind::kLostWorker, why, slot}, now);
  }
  if (!done_) CheckComplete(host, now);
}

void RequestMachine::OnWorkerBack(BootId boot, Time now) {
  const bool before = suspect();
  for (Sample& sample : samples_) {
    std::erase_if(sample.lost, [&](const Peer& peer) { return peer.boot == boot; });
  }
  if (!before || suspect()) return;
  for (Unplaced& group : unplaced_) group.not_before = std::min(group.not_before, now);
}

// Whether a sample still lacks the attempt's first token, which only the prefill worker sends.
bool RequestMachine::LacksFirstToken(const Attempt& attempt) const {
  for (int32_t i = 0; i < attempt.samples; ++i) {
    const Sample& sample = samples_[attempt.first_sample + i];
    if (sample.epoch == attempt.epoch && sample.finish == FinishReason::kNone &&
        sample.tokens.size() <= attempt.resumed) {
      return true;
    }
  }
  return false;
}

Duration RequestMachine::Backoff(int32_t attempts) const {
  const int32_t doublings = std::clamp(attempts - 1, 0, 16);
  return std::min(limits_.max_backoff, limits_.first_backoff * (int64_t{1} << doublings));
}

// Ends an attempt. Its unfinished samples are dispatched again under new epochs.
void RequestMachine::FailAttempt(RequestHost& host, Epoch epoch, const Failure& failure, Time now) {
  const Attempt attempt = *Find(epoch);
  std::erase_if(attempts_, [&](const Attempt& a) { return a.epoch == epoch; });
  EndAttempt(host, attempt, false);
  if (failure.culprit != kNoWorker) {
    const BootId boot = host.PeerOf(failure.culprit).boot;
    if (std::ranges::count(avoid_, boot) == 0) avoid_.push_back(boot);
  }
  last_setback_ = failure.why;

  std::vector<int32_t> open;
  bool fresh = true;  // no sample has a token: one dispatch can serve all of them again
  Record record;
  for (int32_t s = attempt.first_sample; s < attempt.first_sample + attempt.samples; ++s) {
    Sample& sample = samples_[s];
    if (sample.finish != FinishReason::kNone || sample.epoch != epoch) continue;
    sample.early.clear();
    RecordSetback(host, sample, failure, record);
    open.push_back(s);
    fresh = fresh && sample.tokens.empty();
  }
  if (open.empty()) return CheckComplete(host, now);
  if (EndAfter(host, failure, record)) return;
  Time not_before = record.dispatches <= 1 ? now : now + Backoff(record.dispatches - 1);
  if (failure.kind == FailureKind::kLostWorker && suspect()) {
    not_before = std::max(not_before, now + limits_.loss_pause);
  }
  if (fresh && static_cast<int32_t>(open.size()) == attempt.samples) {
    unplaced_.push_back({attempt.first_sample, attempt.samples, now, not_before, false});
  } else {
    for (const int32_t s : open) unplaced_.push_back({s, 1, now, not_before, false});
  }
  PlaceAll(host, now);
}

void RequestMachine::RecordSetback(RequestHost& host,
                                   Sample& sample,
                                   const Failure& failure,
                                   Record& record) {
  const bool failed =
      failure.kind == FailureKind::kFailure || failure.kind == FailureKind::kFailedStep;
  if (failed) ++sample.failures;
  if (failure.kind == FailureKind::kFailedStep) ++sample.failed_steps;
  if (failure.kind == FailureKind::kLostWorker) sample.lost.push_back(host.PeerOf(failure.culprit));
  record.dispatches = std::max(record.dispatches, sample.dispatches);
  record.failures = std::max(record.failures, sample.failures);
  record.failed_steps = std::max(record.failed_steps, sample.failed_steps);
  if (sample.lost.size() > record.lost.size()) record.lost = sample.lost;
}

// Ends the request when `record` has reached a limit. Returns whether the request has ended.
bool RequestMachine::EndAfter(RequestHost& host, const Failure& failure, const Record& record) {
  const WorkerId before = failed_step_on_;
  if (failure.kind == FailureKind::kFailedStep) failed_step_on_ = host.PeerOf(failure.culprit).id;
  const auto losses = static_cast<int32_t>(record.lost.size());
  if (limits_.max_worker_losses > 0 && losses >= limits_.max_worker_losses) {
    std::string names;
    for (const Peer& peer : record.lost) names += fmt::format(" {}", peer.id);
    End(host,
        MakeStatus(StatusCode::kInternal,
                   "{} worker processes were lost in a row with this request; it may be the cause "
                   "and is not retried; the workers:{} (max_worker_losses)",
                   losses,
                   names),
        false);
  } else if (record.failed_steps >= kMaxFailedSteps) {
    End(host,
        MakeStatus(StatusCode::kInternal,
                   "a step with this request failed on worker {}, then on worker {}; the request "
                   "is not retried: {}",
                   before,
                   failed_step_on_,
                   Message(failure.why)),
        false);
  } else if (record.failures >= limits_.max_attempts) {
    End(host,
        MakeStatus(failure.why.code(),
                   "{} (failure {} of {})",
                   Message(failure.why),
                   record.failures,
                   limits_.max_attempts),
        true);
  }
  return done_;
}

// Cancels the unfinished parts of an attempt on its workers and releases their bookings.
void RequestMachine::EndAttempt(RequestHost& host, const Attempt& attempt, bool complete) {
  const auto end = [&](WorkerSlot slot, Epoch epoch, bool finished) {
    if (slot == kNoWorker) return;
    if (!finished) host.Send(slot, CancelCommand{spec_->id, epoch, complete});
    host.Release(slot, spec_->id, epoch);
  };
  end(attempt.prefill, attempt.epoch, attempt.prefill_finished && attempt.committed);
  end(attempt.decode, attempt.decode_epoch, attempt.decode_finished);
}

Status RequestMachine::TimeIsOver(const RequestHost& host) const {
  std::string text = fmt::format("the request's timeout of {:.3f} s has expired",
                                 ToSeconds(spec_->deadline - spec_->arrival));
  if (unplaced()) text += "; " + host.WhyNoPlace(suspect());
  if (!last_setback_.ok()) text += fmt::format("; before that: {}", Message(last_setback_));
  return Status(StatusCode::kDeadlineExceeded, text);
}

}  // namespace baton::router
