#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "router/request_host.h"
#include "router/types.h"

namespace baton::router {

struct RetryLimits {
  // Failed dispatches after which a request ends. Dispatches that are lost with a worker, or with
  // the link to a worker, do not count.
  int32_t max_attempts = 4;
  // Worker processes lost in a row, each with this request, after which it ends; zero: no limit.
  int32_t max_worker_losses = 5;
  Duration loss_pause = std::chrono::seconds(5);  // after each loss of a suspect's worker
  Duration worker_wait{};  // wait for a worker that can take a request; zero: until the deadline
  Duration first_backoff = std::chrono::milliseconds(20);
  Duration max_backoff = std::chrono::milliseconds(500);
  Duration account_wait = std::chrono::milliseconds(50);  // wait for the workers' final reports
};

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
// prefill worker keeps the KV. If no hand-off between two workers has ever succeeded, perhaps none
// can (an unreachable address): after several tries in several seconds the decode worker is left
// out, and without another decode worker the attempt is a failure.
//
// Pure: no I/O, threads or clock. Owned by RouterCore; used by one thread. Every call may end the
// request; then done() is true, an Outcome was delivered, and no more calls are needed.
class RequestMachine final {
 public:
  RequestMachine(std::shared_ptr<const RequestSpec> spec, const RetryLimits& limits);

  void Start(RequestHost& host, Time now);

  // Reports of workers. Reports of an epoch that is not live, and repeated tokens, are ignored.
  void OnToken(RequestHost& host, WorkerSlot from, const TokenOutput& token, Time now);
  void OnHandoff(RequestHost& host, WorkerSlot from, const HandoffReport& report, Time now);
  void OnFinished(RequestHost& host, WorkerSlot from, const FinishedReport& report, Time now);
  void OnFailed(RequestHost& host, WorkerSlot from, const FailedReport& report, Time now);
  void OnWorkerLost(RequestHost& host, WorkerSlot slot, Time now);
  // Takes back the loss of a process that is alive: its stream had broken, or it was silent.
  void OnWorkerBack(BootId boot, Time now);

  // Ends a sample of which the front end needs no more tokens (it found a stop string).
  void StopSample(RequestHost& host, int32_t sample, Time now);
  // Ends the request, because the client disconnected or the router stops.
  void Cancel(RequestHost& host, const Status& why, Time now);

  // To be called at next_wake(), and when a worker has joined.
  void OnTime(RequestHost& host, Time now);
  Time next_wake() const;

  bool done() const { return done_; }
  // Whether a sample waits for a worker.
  bool unplaced() const { return !unplaced_.empty(); }
  // Whether a part of the request is dispatched to workers.
  bool placed() const { return !attempts_.empty(); }
  bool has_token() const { return first_token_ != kNever; }
  bool Uses(WorkerSlot slot) const;
  // Whether a step with this request failed, or several workers in a row were lost with it, and no
  // decode worker has given it a token since.
  bool suspect() const;
  const RequestSpec& spec() const { return *spec_; }

 private:
  // A decode worker that the prefill worker perhaps cannot reach: no hand-off between the two has
  // ever committed. Counts refusals with other reasons than that the worker is full.
  struct OutOfReach {
    BootId boot;
    int32_t refusals = 0;
    Time since{};
    bool given_up = false;  // not used again in this attempt
  };
  // One dispatch: samples [first_sample, first_sample + samples).
  struct Attempt {
    Epoch epoch;         // identifies the attempt; the epoch of the prefill worker's part
    Epoch decode_epoch;  // new with each redirect, because a cancelled part may end late
    int32_t first_sample = 0;
    int32_t samples = 1;
    size_t resumed = 0;  // number of logged tokens that were dispatched with the prompt
    WorkerSlot prefill = kNoWorker;
    WorkerSlot decode = kNoWorker;
    bool committed = false;         // the decode worker has the KV, or needs none
    bool sender_told = false;       // the prefill worker has reported the transfer
    bool prefill_finished = false;  // all tokens of the prefill worker have arrived
    bool decode_finished = false;   // likewise of the decode worker
    std::vector<BootId> refused_by;
    std::vector<OutOfReach> out_of_reach;
    std::optional<Time> redirect_at;
  };
  struct Sample {
    std::vector<TokenId> tokens;           // the log
    std::map<int32_t, TokenOutput> early;  // by index; arrived before their predecessors
    FinishReason finish = FinishReason::kNone;
    // "Since progress": since the last token from a decode worker.
    Epoch epoch;               // of its attempt
    int32_t attempts = 0;      // all dispatches
    int32_t dispatches = 0;    // dispatches since progress, with the present one
    int32_t failures = 0;      // all failed dispatches
    int32_t failed_steps = 0;  // failed steps since progress
    std::vector<Peer> lost;    // processes lost since progress that have not come back
  };
  enum class FailureKind : uint8_t { kLoss, kLostWorker, kFailure, kFailedStep };
  static FailureKind KindOf(const Status& handoff);
  // The reason why an attempt ended before its samples.
  struct Failure {
    FailureKind kind = FailureKind::kLoss;
    Status why;
    WorkerSlot culprit = kNoWorker;
  };
  // The setbacks of the samples of an ended attempt: of each count the maximum over the samples.
  struct Record {
    int32_t dispatches = 0;
    int32_t failures = 0;
    int32_t failed_steps = 0;
    std::vector<Peer> lost;
  };
  struct Unplaced {
    int32_t first_sample = 0;
    int32_t samples = 1;
    Time since{};
    Time not_before{};
    bool tried = false;  // no worker could take it; tried again when a worker joins or revives
    int32_t waits = 0;   // times that a suspect had to wait for a worker without another suspect
  };

  Attempt* Find(Epoch epoch);
  // The live attempt in which worker `from` has `epoch`. Null: the report is to be ignored.
  Attempt* ReportedBy(WorkerSlot from, Epoch epoch);
  void PlaceAll(RequestHost& host, Time now);
  bool PlaceOne(RequestHost& host, const Unplaced& group, Time now);
  void Launch(RequestHost& host, const Unplaced& group, RequestHost::Assignment where);
  DispatchCommand Command(const Attempt& attempt, RequestKind kind, SessionId session) const;
  void OnNothingToHandOver(RequestHost& host, Attempt& attempt, bool from_prefill, Time now);
  void OnRefused(RequestHost& host, Attempt& attempt, const Status& why, Time now);
  void Redirect(RequestHost& host, Attempt& attempt, Time now);
  void Append(RequestHost& host, Sample& sample, const TokenOutput& token, Time now);
  void CloseSamples(RequestHost& host, Attempt& attempt, Time now);
  void OnUnable(RequestHost& host, WorkerSlot from, const FailedReport& report, Time now);
  void FailAttempt(RequestHost& host, Epoch epoch, const Failure& failure, Time now);
  void RecordSetback(RequestHost& host, Sample& sample, const Failure& failure, Record& record);
  bool EndAfter(RequestHost& host, const Failure& failure, const Record& record);
  void EndAttempt(RequestHost& host, const Attempt& attempt, bool complete);
  Status TimeIsOver(const RequestHost& host) const;
  void CheckComplete(RequestHost& host, Time now);
  void End(RequestHost& host, const Status& status, bool retryable);
  bool AllFinished() const;
  bool LacksFirstToken(const Attempt& attempt) const;
  Duration Backoff(int32_t attempts) const;
  RequestAccount Account() const;

  const std::shared_ptr<const RequestSpec> spec_;
  const RetryLimits& limits_;
  std::vector<Sample> samples_;
  std::vector<Attempt> attempts_;
  std::vector<Unplaced> unplaced_;
  std::vector<BootId> avoid_;
  std::vector<BootId> unable_;  // workers that reported that they can never hold the request
  Status unable_why_;           // the last of these reports
  Status last_setback_;
  WorkerId failed_step_on_;  // the last worker on which a step failed
  uint32_t last_epoch_ = 0;
  bool stopped_ = false;  // the front end ended a sample, which workers may still compute
  bool done_ = false;
  Time complete_by_ = kNever;
  Time first_token_ = kNever;
  Time last_token_ = kNever;
  RequestAccount account_;
};

}  // namespace baton::router
