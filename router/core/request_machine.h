#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "router/core/attempt.h"
#include "router/core/core_actions.h"
#include "router/core/replay_result.h"
#include "router/core_options.h"
#include "router/routing/placement.h"
#include "router/types.h"

namespace baton::router {

// The state machine of one request on the router: planned → dispatched to prefill and decode →
// streaming → finished or failed. When a worker is lost, fails or refuses, the request is
// dispatched again under a new epoch. The machine keeps the log of tokens, which a new dispatch
// continues, and delivers each sample's tokens in order, each once.
//
// An attempt can end early for one of four reasons (FailureKind). A loss (a worker leaves, or the
// link between two workers breaks) says nothing about the request: the request is dispatched again,
// with growing pauses, until its deadline. A failure counts against max_attempts. A failed step can
// be caused by any request in the step. All of them become suspects until a decode worker gives
// them a token. A suspect is dispatched only to workers without another suspect, so that it does
// not share a second failed step with the request that causes them. A request ends after its second
// failed step in a row, so that it does not fail the steps of a third worker.
//
// A lost worker process is a loss, but a request can also be the cause that ends one process after
// the other. Because a single outage can take several workers, only the third lost process in a row
// makes a request a suspect. A suspect waits loss_pause after each loss. The pause is longer than
// the time in which one outage takes its workers, and longer than a process with a broken stream
// needs to join again (which takes its loss back). A further loss therefore happened without
// another suspect and not in the same outage. After max_worker_losses the request ends.
//
// A refused hand-off is offered to another decode worker, or again to the same one, while the
// prefill worker keeps the KV. A hand-off can also fail because nothing passes between the two
// workers. Placement then avoids the pair (PairBook). A request whose hand-offs failed several
// times, or for several seconds, is served alone by a decode worker.
//
// Pure: no I/O, threads or clock. The machine asks `placement` for workers, books its load there,
// and appends its actions to `actions`. Owned by RouterCore; used by one thread. Every call may end
// the request; then done() is true, the Outcome is the last event, and no more calls are needed.
class RequestMachine final {
 public:
  // All references outlive the machine.
  RequestMachine(std::shared_ptr<const RequestSpec> spec,
                 const RetryLimits& limits,
                 Placement& placement,
                 CoreActions& actions);

  void Start(Time now);

  // Reports of workers. Reports of an epoch that is not live, and repeated tokens, are ignored.
  void OnToken(WorkerSlot from, const TokenOutput& token, Time now);
  void OnHandoff(WorkerSlot from, const HandoffReport& report, Time now);
  void OnFinished(WorkerSlot from, const FinishedReport& report, Time now);
  void OnFailed(WorkerSlot from, const FailedReport& report, Time now);
  void OnWorkerLost(WorkerSlot slot, Time now);
  // Takes back the loss of a process that is alive: its stream had broken, or it was silent.
  void OnWorkerBack(BootId boot, Time now);

  // Ends a sample, because the front end needs no more tokens of it (it found a stop string).
  void StopSample(int32_t sample, Time now);
  // Ends the request, because the client disconnected or the router stops.
  void Cancel(const Status& why, Time now);

  // A worker may be without another suspect now.
  void OnSuspectLeft(Time now);
  // To be called at next_wake(), and when a worker has joined.
  void OnTime(Time now);
  Time next_wake() const;

  bool done() const { return done_; }
  // Whether a sample waits for a worker.
  bool unplaced() const { return !unplaced_.empty(); }
  // Whether a sample waits for a worker without another suspect.
  bool waits_for_suspect() const;
  // The workers to which parts of the request are dispatched.
  std::vector<WorkerSlot> workers() const;
  bool has_token() const { return first_token_ != kNever; }
  bool Uses(WorkerSlot slot) const;
  // Whether a step with this request failed, or several workers in a row were lost with it, and no
  // decode worker has given it a token since.
  bool suspect() const;
  const RequestSpec& spec() const { return *spec_; }
  const std::shared_ptr<const RequestSpec>& shared_spec() const { return spec_; }

  // For the comparison with another run of the request, once it is done.
  const Status& result() const { return result_; }
  std::vector<SampleOutput> Output() const;
  // The workers of the last dispatch.
  WorkerPair last_workers() const {
    return {WorkerId(account_.prefill_worker), WorkerId(account_.decode_worker)};
  }
  int32_t cached_tokens() const { return account_.cached_tokens; }

 private:
  struct Sample {
    std::vector<TokenId> tokens;           // the log
    std::map<int32_t, TokenOutput> early;  // by index; arrived before their predecessors
    FinishReason finish = FinishReason::kNone;
    bool stopped = false;  // ended by the front end
    // "Since progress": since the last token from a decode worker.
    Epoch epoch;               // of its attempt
    int32_t attempts = 0;      // all dispatches
    int32_t dispatches = 0;    // dispatches since progress, with the present one
    int32_t failures = 0;      // all failed dispatches
    int32_t failed_steps = 0;  // failed steps since progress
    std::vector<Peer> lost;    // processes lost since progress that have not come back
  };
  enum class FailureKind : uint8_t { kLoss, kLostWorker, kFailure, kFailedStep };
  // The reason why an attempt ended before its samples.
  struct Failure {
    FailureKind kind = FailureKind::kLoss;
    Status why;
    WorkerSlot culprit = kNoWorker;
  };
  // The setbacks of an ended attempt: each count is the maximum over the attempt's samples.
  struct Record {
    int32_t dispatches = 0;
    int32_t failures = 0;
    int32_t failed_steps = 0;
    std::vector<Peer> lost;
  };
  struct Unplaced {
    SampleRange samples;
    Time since{};
    Time not_before{};
    bool tried = false;  // no worker could take it; tried again when a worker joins or revives
    int32_t waits = 0;   // times that a suspect had to wait for a worker without another suspect
  };

  Attempt* Find(Epoch epoch);
  // The attempt in which worker `from` has `epoch`. Null: the report is to be ignored.
  Attempt* ReportedBy(WorkerSlot from, Epoch epoch);
  void PlaceAll(Time now);
  bool PlaceOne(const Unplaced& group, Time now);
  void Launch(const Unplaced& group, const Placement::Plan& plan, Time now);
  Placement::Query QueryFor(const SampleRange& samples,
                            const std::vector<BootId>& avoid,
                            const std::vector<BootId>& unable) const;
  void OnNothingToHandOver(Attempt& attempt, bool from_prefill, Time now);
  void OnRefused(Attempt& attempt, const Status& why, Time now);
  void OnHandoffFailed(const Attempt& attempt, const Status& why, WorkerSlot culprit, Time now);
  Status NoteSetback(const Attempt& attempt, std::string_view what, const Status& why, Time now);
  void NoteCommitted(const Attempt& attempt);
  bool ServesAlone() const;
  void Redirect(Attempt& attempt, bool after_pause, Time now);
  void Append(Sample& sample, const TokenOutput& token, Time now);
  void CloseSamples(const Attempt& attempt, Time now);
  void OnUnable(WorkerSlot from, const FailedReport& report, Time now);
  void FailAttempt(Epoch epoch, const Failure& failure, Time now);
  void RecordSetback(Sample& sample, const Failure& failure, Record& record);
  bool EndAfter(const Failure& failure, const Record& record);
  void EndAttempt(const Attempt& attempt, bool complete);
  Status TimeIsOver(Time now) const;
  void CheckComplete(Time now);
  void End(const Status& status, bool retryable);
  bool AllFinished() const;
  bool CanSpare(WorkerSlot slot, const Attempt& attempt) const;
  Duration Backoff(int32_t attempts) const;
  RequestAccount Account() const;
  // Sends a part of the attempt to its worker and books the load. No session for kServe.
  void Dispatch(const Attempt& attempt,
                const Placement::Plan& plan,
                RequestKind kind,
                SessionId session,
                Time now);
  void Send(WorkerSlot slot, WorkerCommand command);
  void Deliver(ClientEvent event);

  const std::shared_ptr<const RequestSpec> spec_;
  const RetryLimits& limits_;
  Placement& placement_;
  CoreActions& actions_;
  std::vector<Sample> samples_;
  std::vector<Attempt> attempts_;
  std::vector<Unplaced> unplaced_;
  std::vector<BootId> avoid_;
  std::vector<BootId> unable_;  // workers that reported that they can never hold the request
  Status unable_why_;           // the last of these reports
  Status last_setback_;
  WorkerId failed_step_on_;      // the last worker on which a step failed
  int32_t failed_handoffs_ = 0;  // in a row
  Duration lost_to_handoffs_{};  // the time that these took
  uint32_t last_epoch_ = 0;
  bool stopped_ = false;  // the front end ended a sample, which workers may still compute
  bool done_ = false;
  Status result_;  // once done_
  Time complete_by_ = kNever;
  Time first_token_ = kNever;
  Time last_token_ = kNever;
  RequestAccount account_;
};

}  // namespace baton::router
