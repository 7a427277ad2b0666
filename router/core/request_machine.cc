#include "router/core/request_machine.h"

#include <algorithm>
#include <span>
#include <utility>

#include "router/request_error.h"

namespace baton::router {
namespace {

// A suspect that waits for a worker without another suspect tries again when it is the oldest one
// and a suspect has left a worker. Because that may be a worker that it cannot use, it also tries
// again after this time, which doubles with each try, because there can be many suspects.
constexpr Duration kSuspectWait = std::chrono::milliseconds(50);
constexpr Duration kMaxSuspectWait = std::chrono::seconds(1);
// The number of worker processes lost in a row that makes a request a suspect.
constexpr size_t kSuspectLosses = 3;

}  // namespace

RequestMachine::RequestMachine(std::shared_ptr<const RequestSpec> spec,
                               const RetryLimits& limits,
                               Placement& placement,
                               CoreActions& actions)
    : spec_(std::move(spec)),
      limits_(limits),
      placement_(placement),
      actions_(actions),
      samples_(spec_->samples) {}

Attempt* RequestMachine::Find(Epoch epoch) {
  const auto found = std::ranges::find(attempts_, epoch, &Attempt::epoch);
  return found == attempts_.end() ? nullptr : &*found;
}

Attempt* RequestMachine::ReportedBy(WorkerSlot from, Epoch epoch) {
  const auto found =
      std::ranges::find_if(attempts_, [&](const Attempt& a) { return a.Has(from, epoch); });
  return found == attempts_.end() ? nullptr : &*found;
}

bool RequestMachine::Uses(WorkerSlot slot) const {
  return std::ranges::any_of(attempts_, [&](const Attempt& a) { return a.Uses(slot); });
}

std::vector<WorkerSlot> RequestMachine::workers() const {
  std::vector<WorkerSlot> workers;
  for (const Attempt& attempt : attempts_) {
    for (const WorkerSlot slot : {attempt.prefill(), attempt.decode_worker()}) {
      if (slot != kNoWorker) workers.push_back(slot);
    }
  }
  return workers;
}

bool RequestMachine::suspect() const {
  return std::ranges::any_of(samples_, [](const Sample& s) {
    const bool blamed = s.failed_steps > 0 || s.lost.size() >= kSuspectLosses;
    return blamed && s.finish == FinishReason::kNone;
  });
}

void RequestMachine::Start(Time now) {
  unplaced_.push_back({.samples = {0, spec_->samples}, .since = now, .not_before = now});
  OnTime(now);
}

// ---- placing

void RequestMachine::PlaceAll(Time now) {
  std::vector<Unplaced> groups = std::exchange(unplaced_, {});
  for (Unplaced& group : groups) {
    if (done_) return;
    if (now >= group.not_before) {
      if (PlaceOne(group, now)) continue;
      group.tried = !suspect();
      if (!group.tried) {
        const int64_t times = int64_t{1} << std::min(group.waits++, 16);
        group.not_before = now + std::min(kMaxSuspectWait, kSuspectWait * times);
      }
    }
    unplaced_.push_back(group);
  }
}

// False when the group must wait.
bool RequestMachine::PlaceOne(const Unplaced& group, Time now) {
  const auto plan = placement_.Place(QueryFor(group.samples, avoid_, unable_), now);
  if (!plan.ok()) {
    const bool never = plan.status().code() == StatusCode::kInvalidArgument;
    // The text of a worker that refused the request is more precise than the router's own.
    const bool told = never && !unable_why_.ok();
    const Status unable(StatusCode::kInvalidArgument, unable_why_.message());
    const bool late = plan.status().code() == StatusCode::kDeadlineExceeded;
    End(told ? WithReason(unable, reason::kContextLengthExceeded) : plan.status(), !never && !late);
    return true;
  }
  if (plan->has_value()) {
    Launch(group, **plan, now);
    return true;
  }
  const bool bounded = limits_.worker_wait > Duration::zero();
  if (!bounded || now - group.since < limits_.worker_wait) return false;
  End(Status(StatusCode::kUnavailable,
             placement_.WhyNoPlace(QueryFor(group.samples, avoid_, unable_), now)),
      true);
  return true;
}

// The samples of one range have the same output so far.
Placement::Query RequestMachine::QueryFor(const SampleRange& samples,
                                          const std::vector<BootId>& avoid,
                                          const std::vector<BootId>& unable) const {
  const Sample& first = samples_[samples.first];
  return {*spec_,
          first.tokens,
          samples.count,
          avoid,
          unable,
          suspect(),
          first.attempts > 0,
          ServesAlone() || spec_->ends_with_prompt()};
}

void RequestMachine::Launch(const Unplaced& group, const Placement::Plan& plan, Time now) {
  const Assignment& where = plan.where;
  const Epoch epoch(++last_epoch_);
  for (int32_t s = group.samples.first; s < group.samples.end(); ++s) {
    Sample& sample = samples_[s];
    sample.epoch = epoch;
    sample.early.clear();
    ++sample.dispatches;
    account_.attempts = std::max(account_.attempts, ++sample.attempts);
  }
  const size_t resumed = samples_[group.samples.first].tokens.size();
  Attempt& attempt = attempts_.emplace_back(epoch, group.samples, resumed, where, now);
  account_.decode_worker = placement_.PeerOf(where.decode).id.value();
  if (where.prefill == kNoWorker) {
    account_.prefill_worker = account_.decode_worker;
    account_.transport.clear();
    return Dispatch(attempt, plan, RequestKind::kServe, SessionId(), now);
  }
  account_.prefill_worker = placement_.PeerOf(where.prefill).id.value();
  placement_.pairs().NoteGiven(where.prefill, where.decode, now);
  if (!plan.decode_first) attempt.OnPrefillFirst();
  const SessionId session = placement_.NewSession();
  Dispatch(attempt, plan, RequestKind::kDecode, session, now);
  Dispatch(attempt, plan, RequestKind::kPrefill, session, now);
}

// ---- actions

void RequestMachine::Dispatch(const Attempt& attempt,
                              const Placement::Plan& plan,
                              RequestKind kind,
                              SessionId session,
                              Time now) {
  const bool prefill = kind == RequestKind::kPrefill;
  const WorkerSlot worker = prefill ? attempt.prefill() : attempt.decode_worker();
  DispatchCommand command;
  Request& request = command.request;
  static_cast<RequestOptions&>(request) = *spec_;
  request.id = spec_->id;
  request.epoch = prefill ? attempt.epoch() : attempt.decode()->epoch;
  request.kind = kind;
  const std::span<const TokenId> output(samples_[attempt.samples().first].tokens);
  request.tokens = spec_->prompt.Plus(output.first(attempt.resumed()));
  request.prompt_length = static_cast<int32_t>(spec_->prompt.size());
  request.first_sample = attempt.samples().first;
  request.samples = attempt.samples().count;
  if (kind != RequestKind::kServe) {
    request.peer_first = plan.decode_first == prefill;
    request.pinned = spec_->pinned.has_value();
  }
  command.session = session;
  command.peer = placement_.PeerOf(prefill ? attempt.decode_worker() : attempt.prefill());
  placement_.Book(plan, request, now);
  actions_.commands.emplace_back(worker, std::move(command));
}

void RequestMachine::Send(WorkerSlot slot, WorkerCommand command) {
  if (placement_.Has(slot)) actions_.commands.emplace_back(slot, std::move(command));
}

void RequestMachine::Deliver(ClientEvent event) {
  actions_.events.emplace_back(spec_->id, std::move(event));
}

// ---- reports of workers

void RequestMachine::OnToken(WorkerSlot from, const TokenOutput& token, Time now) {
  Attempt* attempt = ReportedBy(from, token.epoch);
  if (attempt == nullptr || !attempt->samples().contains(token.sample)) return;
  Sample& sample = samples_[token.sample];
  if (sample.epoch != attempt->epoch() || sample.finish != FinishReason::kNone) return;
  const auto next = static_cast<int32_t>(sample.tokens.size());
  if (token.index < next || token.index >= spec_->max_tokens) return;
  if (from == attempt->decode_worker()) {
    attempt->OnKvArrived();
    sample.dispatches = 1;
    sample.failed_steps = 0;
    sample.lost.clear();
  }
  placement_.PromptDone(from, spec_->id, token.epoch);
  if (token.index > next) {
    sample.early.emplace(token.index, token);
    return;
  }
  Append(sample, token, now);
  while (sample.finish == FinishReason::kNone && !sample.early.empty()) {
    const auto it = sample.early.begin();
    if (it->first != static_cast<int32_t>(sample.tokens.size())) break;
    Append(sample, it->second, now);
    sample.early.erase(it);
  }
  CheckComplete(now);
}

void RequestMachine::Append(Sample& sample, const TokenOutput& token, Time now) {
  sample.tokens.push_back(token.token.token);
  int32_t cached = 0;
  if (first_token_ == kNever) {
    first_token_ = now;
    const auto most = static_cast<int32_t>(spec_->prompt.size());
    if (account_.attempts <= 1) cached = std::clamp(token.cached_tokens, 0, most);
  }
  last_token_ = now;
  if (token.finish == FinishReason::kStop || token.finish == FinishReason::kLength) {
    sample.finish = token.finish;
  }
  Deliver(
      OutputToken{token.sample, token.token, sample.finish, cached, token.prompt, token.pooled});
}

void RequestMachine::OnHandoff(WorkerSlot from, const HandoffReport& report, Time now) {
  Attempt* attempt = ReportedBy(from, report.epoch);
  if (attempt == nullptr) return;
  const bool from_prefill = from == attempt->prefill();
  if (report.outcome == HandoffReport::Outcome::kCommitted) {
    // Both sides report a commit; only the sender reports the times.
    from_prefill ? attempt->OnSent() : attempt->OnKvArrived();
    NoteCommitted(*attempt);
    account_.transfer_bytes = std::max(account_.transfer_bytes, report.bytes);
    account_.transfer_ms = std::max(account_.transfer_ms, ToMillis(report.transfer));
    account_.transfer_gigabytes_per_second =
        std::max(account_.transfer_gigabytes_per_second, report.bytes_per_second / 1e9);
    if (!report.transport.empty()) account_.transport = report.transport;
    return CheckComplete(now);
  }
  if (report.outcome == HandoffReport::Outcome::kNotNeeded) {
    return OnNothingToHandOver(*attempt, from_prefill, now);
  }
  if (attempt->committed()) return;
  if (report.outcome == HandoffReport::Outcome::kRefused) {
    if (from_prefill && attempt->decode() != nullptr) OnRefused(*attempt, report.status, now);
    return;
  }
  const WorkerSlot other = from_prefill ? attempt->decode_worker() : attempt->prefill();
  OnHandoffFailed(*attempt, report.status, other, now);
}

// The first token ended every sample, so no KV is sent. The prefill worker informs the decode
// worker, which waits for the KV; each of the two reports kNotNeeded.
void RequestMachine::OnNothingToHandOver(Attempt& attempt, bool from_prefill, Time now) {
  if (from_prefill) {
    attempt.OnNothingToSend();
    return CheckComplete(now);
  }
  placement_.Release(attempt.decode_worker(), spec_->id, attempt.decode()->epoch);
  attempt.OnDecodeEnded();
  attempt.tokens_complete() ? CloseSamples(attempt, now) : CheckComplete(now);
}

void RequestMachine::OnFinished(WorkerSlot from, const FinishedReport& report, Time now) {
  Attempt* attempt = ReportedBy(from, report.epoch);
  if (attempt == nullptr) return;
  const bool from_prefill = from == attempt->prefill();
  placement_.Release(from, spec_->id, report.epoch);
  from_prefill ? attempt->OnComputed() : attempt->OnDecodeEnded();
  if (from_prefill || attempt->prefill() == kNoWorker) {
    account_.queue_ms = ToMillis(report.times.queued);
    account_.prefill_ms = ToMillis(report.times.prefill);
    if (account_.attempts <= 1) account_.cached_tokens = report.times.cached_tokens;
  }
  attempt->tokens_complete() ? CloseSamples(*attempt, now) : CheckComplete(now);
}

// Both workers have sent their last report. A sample without a finish reason ended with its last
// token, or tokens are missing.
void RequestMachine::CloseSamples(const Attempt& attempt, Time now) {
  const WorkerSlot decode = attempt.decode_worker();
  for (int32_t s = attempt.samples().first; s < attempt.samples().end(); ++s) {
    Sample& sample = samples_[s];
    if (sample.finish != FinishReason::kNone || sample.epoch != attempt.epoch()) continue;
    const auto& stops = spec_->stop_tokens;
    if (!sample.tokens.empty() &&
        std::find(stops.begin(), stops.end(), sample.tokens.back()) != stops.end()) {
      sample.finish = FinishReason::kStop;
    } else if (static_cast<int32_t>(sample.tokens.size()) >= spec_->max_tokens) {
      sample.finish = FinishReason::kLength;
    } else {
      const Status why = MakeStatus(StatusCode::kInternal,
                                    "worker {} ended sample {} after {} tokens without a finish "
                                    "reason",
                                    placement_.PeerOf(decode).id,
                                    s,
                                    sample.tokens.size());
      return FailAttempt(attempt.epoch(), {FailureKind::kFailure, why, decode}, now);
    }
    Deliver(OutputToken{s, std::nullopt, sample.finish});
  }
  CheckComplete(now);
}

// ---- from the client

void RequestMachine::StopSample(int32_t sample, Time now) {
  if (done_ || sample < 0 || sample >= spec_->samples) return;
  if (samples_[sample].finish != FinishReason::kNone) return;
  samples_[sample].finish = FinishReason::kStop;
  samples_[sample].stopped = true;
  stopped_ = true;
  std::erase_if(unplaced_, [&](const Unplaced& u) {
    return u.samples.count == 1 && u.samples.first == sample;
  });
  CheckComplete(now);
  if (done_) return;
  // While a refused hand-off waits for another decode worker, there is no worker to notify:
  // Redirect sends the stopped samples to the next decode worker.
  const Attempt* attempt = Find(samples_[sample].epoch);
  if (attempt == nullptr || !attempt->decode_open()) return;
  const Attempt::DecodePart& decode = *attempt->decode();
  Send(decode.worker, StopSampleCommand{spec_->id, decode.epoch, sample});
}

void RequestMachine::Cancel(const Status& why, Time) {
  if (!done_) End(why, false);
}

// ---- the end

bool RequestMachine::AllFinished() const {
  return std::all_of(samples_.begin(), samples_.end(), [](const Sample& s) {
    return s.finish != FinishReason::kNone;
  });
}

// Once all samples have ended, ends the request: at once when the workers have sent their final
// reports or must be cancelled, else after limits_.account_wait.
void RequestMachine::CheckComplete(Time now) {
  if (done_ || !AllFinished()) return;
  const bool accounted = std::ranges::all_of(attempts_, &Attempt::accounted);
  if (accounted || stopped_ || now >= complete_by_) return End(OkStatus(), false);
  if (complete_by_ == kNever) complete_by_ = now + limits_.account_wait;
}

void RequestMachine::End(const Status& status, bool retryable) {
  done_ = true;
  result_ = status;
  for (const Attempt& attempt : attempts_) EndAttempt(attempt, status.ok());
  attempts_.clear();
  unplaced_.clear();
  RequestAccount account = Account();
  if (status.ok() && !spec_->ends_with_prompt()) {
    placement_.LearnOutput(account.generated_tokens);
  }
  Deliver(Outcome{status, retryable, std::move(account), spec_->own_deadline});
}

std::vector<SampleOutput> RequestMachine::Output() const {
  std::vector<SampleOutput> output;
  for (const Sample& sample : samples_) {
    const bool early = sample.finish == FinishReason::kLength &&
                       static_cast<int32_t>(sample.tokens.size()) < spec_->max_tokens;
    output.push_back({sample.tokens, sample.finish, sample.stopped || early});
  }
  return output;
}

RequestAccount RequestMachine::Account() const {
  RequestAccount account = account_;
  size_t longest = 0;
  for (const Sample& sample : samples_) {
    if (!spec_->ends_with_prompt()) {
      account.generated_tokens += static_cast<int32_t>(sample.tokens.size());
    }
    longest = std::max(longest, sample.tokens.size());
  }
  if (first_token_ != kNever) account.ttft_ms = ToMillis(first_token_ - spec_->arrival);
  if (longest > 1) {
    account.tpot_ms = ToMillis(last_token_ - first_token_) / static_cast<double>(longest - 1);
  }
  return account;
}

// ---- time

bool RequestMachine::waits_for_suspect() const {
  return suspect() &&
         std::ranges::any_of(unplaced_, [](const Unplaced& group) { return group.waits > 0; });
}

void RequestMachine::OnSuspectLeft(Time now) {
  for (Unplaced& group : unplaced_) {
    if (group.waits > 0) group.not_before = std::min(group.not_before, now);
  }
  OnTime(now);
}

void RequestMachine::OnTime(Time now) {
  if (done_) return;
  if (now >= spec_->deadline) return End(TimeIsOver(now), true);
  if (!unplaced_.empty()) PlaceAll(now);
  std::vector<Epoch> due;
  for (const Attempt& attempt : attempts_) {
    if (now >= attempt.redirect_at()) due.push_back(attempt.epoch());
  }
  for (const Epoch epoch : due) {
    if (Attempt* attempt = Find(epoch); attempt != nullptr) Redirect(*attempt, true, now);
  }
  CheckComplete(now);
}

Time RequestMachine::next_wake() const {
  Time wake = std::min(spec_->deadline, complete_by_);
  for (const Unplaced& group : unplaced_) {
    if (!group.tried) {
      wake = std::min(wake, group.not_before);
    } else if (limits_.worker_wait > Duration::zero()) {
      wake = std::min(wake, group.since + limits_.worker_wait);
    }
  }
  for (const Attempt& attempt : attempts_) {
    wake = std::min(wake, attempt.redirect_at());
  }
  return wake;
}

}  // namespace baton::router
