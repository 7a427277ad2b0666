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
  // Dispatches that fail. Those that are lost with a worker, or with the way to it, do not count.
  int32_t max_attempts = 4;
  // Worker processes that are lost with a request, in a row; zero: any number.
  int32_t max_worker_losses = 5;
  Duration loss_pause = std::chrono::seconds(5);  // after each loss of a suspect's worker
  Duration worker_wait{};  // for a worker that can take a request; zero: until the deadline
  Duration first_backoff = std::chrono::milliseconds(20);
  Duration max_backoff = std::chrono::milliseconds(500);
  Duration account_wait = std::chrono::milliseconds(50);  // for the workers' accounts at the end
};

// The life of one request on the router: planned → dispatched to prefill and decode → streaming →
// finished or failed, with new epochs elsewhere when a worker is lost, fails or refuses. Keeps the
// token log that resuming needs; delivers each sample's tokens in order, each once.
//
// What ends an attempt is of one of four kinds. A loss (a worker leaves, or the link between two
// breaks) says nothing of the request: it is dispatched again, with growing pauses, until its
// deadline. A failure counts against max_attempts. A failed step may be the doing of any request in
// it: they are suspects until they get on, and are tried again one at a time on each worker, so
// that none shares a second failed step with the culprit. After the second in a row a request ends,
// so that it does not fail the steps of a third worker.
//
// A lost worker process is a loss, but a request can be what ends processes, one after the other. A
// single outage can take several workers, too, so that only the third loss in a row makes a
// suspect. Suspects wait loss_pause before each dispatch, longer than the workers of one outage
// take to be lost and than a process whose stream broke takes to join again, which takes the loss
// back. What is lost now was lost beside no other suspect and in another outage, if in any: after
// max_worker_losses the request ends.
//
// A refused hand-off is offered to another decode worker, or again, while the KV is kept. Where it
// never worked between two workers it may never work (an address that is not reachable): that is
// tried for a while, and is a failure when there is no other decode worker.
//
// Pure: no I/O, threads or clock. Owned by RouterCore; used by one thread. Every call may end the
// request; then done() is true, an Outcome was delivered, and the machine wants no more calls.
class RequestMachine final {
 public:
  RequestMachine(std::shared_ptr<const RequestSpec> spec, const RetryLimits& limits);

  void Start(RequestHost& host, Time now);

  // From workers. What does not belong to a live epoch, or comes twice, is ignored.
  void OnToken(RequestHost& host, WorkerSlot from, const TokenOutput& token, Time now);
  void OnHandoff(RequestHost& host, WorkerSlot from, const HandoffReport& report, Time now);
  void OnFinished(RequestHost& host, WorkerSlot from, const FinishedReport& report, Time now);
  void OnFailed(RequestHost& host, WorkerSlot from, const FailedReport& report, Time now);
  void OnWorkerLost(RequestHost& host, WorkerSlot slot, Time now);
  // A process that seemed lost lives: the stream to it broke, or it was silent.
  void OnWorkerBack(BootId boot, Time now);

  // The front end needs no more of this sample (a stop string was found).
  void StopSample(RequestHost& host, int32_t sample, Time now);
  // Ends the request: the client left, or the router stops.
  void Cancel(RequestHost& host, const Status& why, Time now);

  // Call at next_wake(), and when workers joined.
  void OnTime(RequestHost& host, Time now);
  Time next_wake() const;

  bool done() const { return done_; }
  // Waits for a worker.
  bool unplaced() const { return !unplaced_.empty(); }
  // Workers have a part of it.
  bool placed() const { return !attempts_.empty(); }
  bool has_token() const { return first_token_ != kNever; }
  bool Uses(WorkerSlot slot) const;
  // A step failed with it, or workers were lost with it, and it has not got on since.
  bool suspect() const;
  const RequestSpec& spec() const { return *spec_; }

 private:
  // A decode worker that the prefill worker has never reached and, it seems, cannot.
  struct OutOfReach {
    BootId boot;
    int32_t refusals = 0;
    Time since{};
    bool given_up = false;  // for this attempt
  };
  // One dispatch: samples [first_sample, first_sample + samples).
  struct Attempt {
    Epoch epoch;         // names the attempt, and is the prefill worker's
    Epoch decode_epoch;  // a redirect gives decode another one: what it cancelled may end late
    int32_t first_sample = 0;
    int32_t samples = 1;
    size_t resumed = 0;  // tokens of the log that were dispatched with the prompt
    WorkerSlot prefill = kNoWorker;
    WorkerSlot decode = kNoWorker;
    bool committed = false;         // decode has the KV, or never needs any
    bool sender_told = false;       // of the transfer
    bool prefill_finished = false;  // its tokens have all come
    bool decode_finished = false;
    std::vector<BootId> refused_by;
    std::vector<OutOfReach> out_of_reach;
    std::optional<Time> redirect_at;
  };
  struct Sample {
    std::vector<TokenId> tokens;           // the log
    std::map<int32_t, TokenOutput> early;  // came before their predecessors
    FinishReason finish = FinishReason::kNone;
    Epoch epoch;               // of its attempt
    int32_t attempts = 0;      // dispatches in all
    int32_t dispatches = 0;    // since it got on, which is when a worker that decodes gave a token
    int32_t failures = 0;      // of its dispatches
    int32_t failed_steps = 0;  // since it got on
    std::vector<Peer> lost;    // processes since it got on, as far as they have not come back
  };
  enum class Setback : uint8_t { kLoss, kLostWorker, kFailure, kFailedStep };
  static Setback KindOf(const Status& handoff);
  // Why an attempt ends before its samples do.
  struct Failure {
    Setback kind = Setback::kLoss;
    Status why;
    WorkerSlot culprit = kNoWorker;
  };
  // What speaks against the samples of an attempt that ended: the most that one of them has.
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
    bool tried = false;  // no worker could take it then
    int32_t waits = 0;   // of a suspect, for a worker without another one
  };

  Attempt* Find(Epoch epoch);
  // The live attempt that `from` works for, or null: then its report is ignored.
  Attempt* ReportedBy(WorkerSlot from, Epoch epoch);
  void PlaceAll(RequestHost& host, Time now);
  bool PlaceOne(RequestHost& host, const Unplaced& group, Time now);
  void Launch(RequestHost& host, const Unplaced& group, RequestHost::Assignment where, Time now);
  DispatchCommand Command(const Attempt& attempt, RequestKind kind, SessionId session, Time now);
  void OnNothingToHandOver(RequestHost& host, Attempt& attempt, bool from_prefill, Time now);
  void OnRefused(RequestHost& host, Attempt& attempt, const Status& why, Time now);
  void Redirect(RequestHost& host, Attempt& attempt, Time now);
  void Append(RequestHost& host, Sample& sample, const TokenOutput& token, Time now);
  void CloseSamples(RequestHost& host, Attempt& attempt, Time now);
  void OnUnable(RequestHost& host, WorkerSlot from, const FailedReport& report, Time now);
  void FailAttempt(RequestHost& host, Epoch epoch, const Failure& failure, Time now);
  void Blame(RequestHost& host, Sample& sample, const Failure& failure, Record& record);
  bool EndAfter(RequestHost& host, const Failure& failure, const Record& record);
  void EndAttempt(RequestHost& host, const Attempt& attempt, bool complete);
  Status TimeIsOver(const RequestHost& host) const;
  void CheckComplete(RequestHost& host, Time now);
  void End(RequestHost& host, const Status& status, bool retryable);
  bool AllFinished() const;
  bool Lacks(const Attempt& attempt) const;
  Duration Backoff(int32_t attempts) const;
  RequestAccount Account() const;

  const std::shared_ptr<const RequestSpec> spec_;
  const RetryLimits& limits_;
  std::vector<Sample> samples_;
  std::vector<Attempt> attempts_;
  std::vector<Unplaced> unplaced_;
  std::vector<BootId> avoid_;
  std::vector<BootId> unable_;  // workers that cannot hold it, by their own word
  Status unable_why_;           // of the last of them
  Status last_setback_;
  WorkerId failed_step_on_;  // the last worker
  uint32_t last_epoch_ = 0;
  bool stopped_ = false;  // a sample was ended by the front end: workers may be busy with it
  bool done_ = false;
  Time complete_by_ = kNever;
  Time first_token_ = kNever;
  Time last_token_ = kNever;
  RequestAccount account_;
};

}  // namespace baton::router
