#include "router/request_machine.h"

#include <algorithm>
#include <span>
#include <utility>

#include "router/request_error.h"

namespace baton::router {
namespace {

// The wait between a suspect's tries to find a worker without another suspect. The wait doubles
// with each try, because there can be many suspects.
constexpr Duration kSuspectWait = std::chrono::milliseconds(50);
constexpr Duration kMaxSuspectWait = std::chrono::seconds(1);
// The number of worker processes lost in a row that makes a request a suspect.
constexpr size_t kSuspectLosses = 3;

}  // namespace

RequestMachine::RequestMachine(std::shared_ptr<const RequestSpec> spec, const RetryLimits& limits)
    : spec_(std::move(spec)), limits_(limits), samples_(spec_->samples) {}

RequestMachine::Attempt* RequestMachine::Find(Epoch epoch) {
  for (Attempt& attempt : attempts_) {
    if (attempt.epoch == epoch) return &attempt;
  }
  return nullptr;
}

RequestMachine::Attempt* RequestMachine::ReportedBy(WorkerSlot from, Epoch epoch) {
  if (done_) return nullptr;
  for (Attempt& attempt : attempts_) {
    const bool prefills = from == attempt.prefill && epoch == attempt.epoch;
    if (prefills || (from == attempt.decode && epoch == attempt.decode_epoch)) return &attempt;
  }
  return nullptr;
}

bool RequestMachine::Uses(WorkerSlot slot) const {
  return std::any_of(attempts_.begin(), attempts_.end(), [&](const Attempt& a) {
    return a.prefill == slot || a.decode == slot;
  });
}

bool RequestMachine::suspect() const {
  return std::ranges::any_of(samples_, [](const Sample& s) {
    const bool blamed = s.failed_steps > 0 || s.lost.size() >= kSuspectLosses;
    return blamed && s.finish == FinishReason::kNone;
  });
}

void RequestMachine::Start(RequestHost& host, Time now) {
  unplaced_.push_back({.samples = spec_->samples, .since = now, .not_before = now});
  OnTime(host, now);
}

// ---- placing

void RequestMachine::PlaceAll(RequestHost& host, Time now) {
  std::vector<Unplaced> groups = std::exchange(unplaced_, {});
  for (Unplaced& group : groups) {
    if (done_) return;
    if (now >= group.not_before) {
      if (PlaceOne(host, group, now)) continue;
      // A suspect must poll: no event reports that the worker of another suspect is free.
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
bool RequestMachine::PlaceOne(RequestHost& host, const Unplaced& group, Time now) {
  const Sample& first = samples_[group.first_sample];
  const auto where = host.Place(
      {*spec_, first.tokens, group.samples, avoid_, unable_, suspect(), first.attempts > 0});
  if (!where.ok()) {
    const bool never = where.status().code() == StatusCode::kInvalidArgument;
    // The text of a worker that refused the request is more precise than the router's own.
    const bool told = never && !unable_why_.ok();
    const Status unable(StatusCode::kInvalidArgument, unable_why_.message());
    End(host, told ? WithReason(unable, reason::kContextLengthExceeded) : where.status(), !never);
    return true;
  }
  if (where->has_value()) {
    Launch(host, group, **where);
    return true;
  }
  const bool bounded = limits_.worker_wait > Duration::zero();
  if (!bounded || now - group.since < limits_.worker_wait) return false;
  End(host, Status(StatusCode::kUnavailable, host.WhyNoPlace(suspect())), true);
  return true;
}

void RequestMachine::Launch(RequestHost& host,
                            const Unplaced& group,
                            RequestHost::Assignment where) {
  Attempt attempt;
  attempt.epoch = attempt.decode_epoch = Epoch(++last_epoch_);
  attempt.first_sample = group.first_sample;
  attempt.samples = group.samples;
  attempt.prefill = where.prefill;
  attempt.decode = where.decode;
  attempt.resumed = samples_[group.first_sample].tokens.size();
  attempt.committed = where.prefill == kNoWorker;
  for (int32_t i = 0; i < group.samples; ++i) {
    Sample& sample = samples_[group.first_sample + i];
    sample.epoch = attempt.epoch;
    sample.early.clear();
    ++sample.dispatches;
    account_.attempts = std::max(account_.attempts, ++sample.attempts);
  }
  attempts_.push_back(attempt);
  account_.decode_worker = host.PeerOf(where.decode).id.value();
  if (where.prefill == kNoWorker) {
    account_.prefill_worker = account_.decode_worker;
    account_.transport.clear();
    host.Send(where.decode, Command(attempt, RequestKind::kServe, SessionId()));
    return;
  }
  account_.prefill_worker = host.PeerOf(where.prefill).id.value();
  const SessionId session = host.NewSession();
  DispatchCommand decode = Command(attempt, RequestKind::kDecode, session);
  decode.peer = host.PeerOf(where.prefill);
  DispatchCommand prefill = Command(attempt, RequestKind::kPrefill, session);
  prefill.peer = host.PeerOf(where.decode);
  host.Send(where.decode, std::move(decode));
  host.Send(where.prefill, std::move(prefill));
}

DispatchCommand RequestMachine::Command(const Attempt& attempt,
                                        RequestKind kind,
                                        SessionId session) const {
  DispatchCommand command;
  Request& request = command.request;
  static_cast<RequestOptions&>(request) = *spec_;
  request.id = spec_->id;
  request.epoch = kind == RequestKind::kPrefill ? attempt.epoch : attempt.decode_epoch;
  request.kind = kind;
  const std::span<const TokenId> output(samples_[attempt.first_sample].tokens);
  request.tokens = spec_->prompt.Plus(output.first(attempt.resumed));
  request.prompt_length = static_cast<int32_t>(spec_->prompt.size());
  request.first_sample = attempt.first_sample;
  request.samples = attempt.samples;
  command.session = session;
  return command;
}

// ---- reports of workers

void RequestMachine::OnToken(RequestHost& host,
                             WorkerSlot from,
                             const TokenOutput& token,
                             Time now) {
  Attempt* attempt = ReportedBy(from, token.epoch);
  if (attempt == nullptr) return;
  const int32_t offset = token.sample - attempt->first_sample;
  if (offset < 0 || offset >= attempt->samples) return;
  Sample& sample = samples_[token.sample];
  if (sample.epoch != attempt->epoch || sample.finish != FinishReason::kNone) return;
  const auto next = static_cast<int32_t>(sample.tokens.size());
  if (token.index < next || token.index >= spec_->max_tokens) return;
  if (from == attempt->decode) {
    attempt->committed = true;
    sample.dispatches = 1;
    sample.failed_steps = 0;
    sample.lost.clear();
  }
  host.PromptDone(from, spec_->id, token.epoch);
  if (token.index > next) {
    sample.early.emplace(token.index, token);
    return;
  }
  Append(host, sample, token, now);
  while (sample.finish == FinishReason::kNone && !sample.early.empty()) {
    const auto it = sample.early.begin();
    if (it->first != static_cast<int32_t>(sample.tokens.size())) break;
    Append(host, sample, it->second, now);
    sample.early.erase(it);
  }
  CheckComplete(host, now);
}

void RequestMachine::Append(RequestHost& host, Sample& sample, const TokenOutput& token, Time now) {
  sample.tokens.push_back(token.token.token);
  if (first_token_ == kNever) first_token_ = now;
  last_token_ = now;
  if (token.finish == FinishReason::kStop || token.finish == FinishReason::kLength) {
    sample.finish = token.finish;
  }
  host.Deliver(spec_->id, OutputToken{token.sample, token.token, sample.finish});
}

void RequestMachine::OnHandoff(RequestHost& host,
                               WorkerSlot from,
                               const HandoffReport& report,
                               Time now) {
  Attempt* attempt = ReportedBy(from, report.epoch);
  if (attempt == nullptr) return;
  const bool from_prefill = from == attempt->prefill;
  if (report.outcome == HandoffReport::Outcome::kCommitted) {
    // Both sides report a commit; only the sender reports the times.
    (from_prefill ? attempt->sender_told : attempt->committed) = true;
    host.NoteHandOver(attempt->prefill, attempt->decode);
    account_.transfer_bytes = std::max(account_.transfer_bytes, report.bytes);
    account_.transfer_ms = std::max(account_.transfer_ms, ToMillis(report.transfer));
    account_.transfer_gigabytes_per_second =
        std::max(account_.transfer_gigabytes_per_second, report.bytes_per_second / 1e9);
    if (!report.transport.empty()) account_.transport = report.transport;
    CheckComplete(host, now);
    return;
  }
  if (report.outcome == HandoffReport::Outcome::kNotNeeded) {
    return OnNothingToHandOver(host, *attempt, from_prefill, now);
  }
  if (attempt->committed) return;
  if (report.outcome == HandoffReport::Outcome::kRefused) {
    if (from_prefill && !attempt->redirect_at.has_value()) {
      OnRefused(host, *attempt, report.status, now);
    }
    return;
  }
  const WorkerSlot other = from_prefill ? attempt->decode : attempt->prefill;
  const Status why = Annotate(report.status, "the KV hand-off failed");
  FailAttempt(host, attempt->epoch, {KindOf(report.status), why, other}, now);
}

// The first token ended every sample, so no KV is sent. The prefill worker informs the decode
// worker, which waits for the KV; each of the two reports kNotNeeded.
void RequestMachine::OnNothingToHandOver(RequestHost& host,
                                         Attempt& attempt,
                                         bool from_prefill,
                                         Time now) {
  if (from_prefill) {
    attempt.committed = attempt.sender_told = true;
    attempt.redirect_at.reset();
    if (attempt.decode == kNoWorker) attempt.decode_finished = true;
    return CheckComplete(host, now);
  }
  attempt.decode_finished = true;
  host.Release(attempt.decode, spec_->id, attempt.decode_epoch);
  attempt.prefill_finished ? CloseSamples(host, attempt, now) : CheckComplete(host, now);
}

void RequestMachine::OnFinished(RequestHost& host,
                                WorkerSlot from,
                                const FinishedReport& report,
                                Time now) {
  Attempt* attempt = ReportedBy(from, report.epoch);
  if (attempt == nullptr) return;
  const bool from_prefill = from == attempt->prefill;
  host.Release(from, spec_->id, report.epoch);
  if (from_prefill) {
    attempt->prefill_finished = true;
  } else {
    attempt->decode_finished = true;
  }
  if (from_prefill || attempt->prefill == kNoWorker) {
    account_.queue_ms = ToMillis(report.times.queued);
    account_.prefill_ms = ToMillis(report.times.prefill);
    if (account_.attempts <= 1) account_.cached_tokens = report.times.cached_tokens;
  }
  if (attempt->decode_finished && (attempt->prefill == kNoWorker || attempt->prefill_finished)) {
    CloseSamples(host, *attempt, now);
  } else {
    CheckComplete(host, now);
  }
}

// Both workers have sent their last report. A sample without a finish reason ended with its last
// token, or tokens are missing.
void RequestMachine::CloseSamples(RequestHost& host, Attempt& attempt, Time now) {
  const Epoch epoch = attempt.epoch;
  for (int32_t i = 0; i < attempt.samples; ++i) {
    Sample& sample = samples_[attempt.first_sample + i];
    if (sample.finish != FinishReason::kNone || sample.epoch != epoch) continue;
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
                                    host.PeerOf(attempt.decode).id,
                                    attempt.first_sample + i,
                                    sample.tokens.size());
      return FailAttempt(host, epoch, {FailureKind::kFailure, why, attempt.decode}, now);
    }
    host.Deliver(spec_->id, OutputToken{attempt.first_sample + i, std::nullopt, sample.finish});
  }
  CheckComplete(host, now);
}

// ---- from the client

void RequestMachine::StopSample(RequestHost& host, int32_t sample, Time now) {
  if (done_ || sample < 0 || sample >= spec_->samples) return;
  if (samples_[sample].finish != FinishReason::kNone) return;
  samples_[sample].finish = FinishReason::kStop;
  stopped_ = true;
  std::erase_if(unplaced_,
                [&](const Unplaced& u) { return u.samples == 1 && u.first_sample == sample; });
  CheckComplete(host, now);
  if (done_) return;
  // While a refused hand-off waits for another decode worker, there is no worker to notify:
  // Redirect sends the stopped samples to the next decode worker.
  const Attempt* attempt = Find(samples_[sample].epoch);
  if (attempt == nullptr || attempt->decode == kNoWorker || attempt->decode_finished) return;
  host.Send(attempt->decode, StopSampleCommand{spec_->id, attempt->decode_epoch, sample});
}

void RequestMachine::Cancel(RequestHost& host, const Status& why, Time) {
  if (!done_) End(host, why, false);
}

// ---- the end

bool RequestMachine::AllFinished() const {
  return std::all_of(samples_.begin(), samples_.end(), [](const Sample& s) {
    return s.finish != FinishReason::kNone;
  });
}

// Once all samples have ended, ends the request: at once when the workers have sent their final
// reports or must be cancelled, else after limits_.account_wait.
void RequestMachine::CheckComplete(RequestHost& host, Time now) {
  if (done_ || !AllFinished()) return;
  const bool accounted = std::all_of(attempts_.begin(), attempts_.end(), [](const Attempt& a) {
    return a.decode_finished && (a.prefill == kNoWorker || (a.prefill_finished && a.sender_told));
  });
  if (accounted || stopped_ || now >= complete_by_) return End(host, OkStatus(), false);
  if (complete_by_ == kNever) complete_by_ = now + limits_.account_wait;
}

void RequestMachine::End(RequestHost& host, const Status& status, bool retryable) {
  done_ = true;
  for (const Attempt& attempt : attempts_) EndAttempt(host, attempt, status.ok());
  attempts_.clear();
  unplaced_.clear();
  host.Deliver(spec_->id, Outcome{status, retryable, Account()});
}

RequestAccount RequestMachine::Account() const {
  RequestAccount account = account_;
  size_t longest = 0;
  for (const Sample& sample : samples_) {
    account.generated_tokens += static_cast<int32_t>(sample.tokens.size());
    longest = std::max(longest, sample.tokens.size());
  }
  if (first_token_ != kNever) account.ttft_ms = ToMillis(first_token_ - spec_->arrival);
  if (longest > 1) {
    account.tpot_ms = ToMillis(last_token_ - first_token_) / static_cast<double>(longest - 1);
  }
  return account;
}

// ---- time

void RequestMachine::OnTime(RequestHost& host, Time now) {
  if (done_) return;
  if (now >= spec_->deadline) return End(host, TimeIsOver(host), true);
  if (!unplaced_.empty()) PlaceAll(host, now);
  std::vector<Epoch> due;
  for (const Attempt& attempt : attempts_) {
    if (attempt.redirect_at.has_value() && now >= *attempt.redirect_at) {
      due.push_back(attempt.epoch);
    }
  }
  for (const Epoch epoch : due) {
    if (Attempt* attempt = Find(epoch); attempt != nullptr) Redirect(host, *attempt, now);
  }
  CheckComplete(host, now);
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
    if (attempt.redirect_at.has_value()) wake = std::min(wake, *attempt.redirect_at);
  }
  return wake;
}

}  // namespace baton::router
