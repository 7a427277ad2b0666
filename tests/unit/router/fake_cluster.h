#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "router/core/router_core.h"

namespace baton::router {

// The output of the fake model: a function of request, sample and index alone, so that every worker
// computes the same tokens at every epoch.
TokenId TrueToken(RequestId id, int32_t sample, int32_t index);
int32_t TrueLength(RequestId id, int32_t max_tokens, int32_t sample);
// What a worker says that gives a wrong token.
inline TokenId WrongToken(TokenId right) {
  return right + 1;
}
FinishReason TrueFinish(RequestId id, int32_t max_tokens, int32_t sample, int32_t index);

// Probabilities of faults.
struct Chaos {
  double refuse = 0;        // a hand-off is refused, because the stream broke
  double full = 0;          // a hand-off is refused, because no blocks are free
  double fail_handoff = 0;  // a hand-off fails
  double fail_request = 0;  // a dispatch fails, with request_code
  double duplicate = 0;     // a worker's message is sent twice
  double crash = 0;         // a worker crashes; per worker and millisecond
  double stall = 0;         // a worker stalls; per worker and millisecond
  int max_delay_ms = 5;     // longest delay of a message; each stream keeps its order
  StatusCode request_code = StatusCode::kUnavailable;
};

// A RouterCore with fake workers in discrete time: one step is one millisecond. Each stream keeps
// the order of its messages and has its own delays.
class FakeCluster final {
 public:
  FakeCluster(const CoreOptions& options, const Chaos& chaos, uint64_t seed);

  void AddWorker(const std::string& name, bool prefill, bool decode, int32_t blocks = 10'000);
  // The worker, which is added later, says that it is not deterministic.
  void MakeNondeterministic(const std::string& name) { nondeterministic_.insert(name); }
  // Every step of this worker fails from now on.
  void BreakSteps(const std::string& name) { broken_.insert(name); }
  // This worker gives a wrong token for every output index `index`.
  void GiveWrongToken(const std::string& name, int32_t index) { wrong_.insert({name, index}); }
  // The results of replays so far. A replay computes the tokens of the request whose id is its
  // seed.
  const std::vector<ReplayResult>& replays() const { return replays_; }
  // Every step with this request fails.
  void Poison(RequestId id) { poison_ = id; }
  // This request ends every worker process that computes it; with `decode_only`, prefill workers
  // are not affected.
  void MakeDeadly(RequestId id, bool decode_only) { deadly_ = {id, decode_only}; }
  // The number of processes that the deadly request has ended.
  int deaths() const { return deaths_; }
  struct Cut {
    Time until{};  // kNever: for ever
    // The hand-off begins and fails; else the prefill worker cannot reach the decode worker.
    bool only_data = false;
    Duration noticed_after{};
  };
  // Nothing passes from this prefill worker to this decode worker.
  void Sever(const std::string& prefill, const std::string& decode, const Cut& cut) {
    severed_[{prefill, decode}] = cut;
  }
  // The number of hand-offs that the two workers began.
  int handoffs(const std::string& prefill, const std::string& decode) const {
    const auto found = handoffs_.find({prefill, decode});
    return found == handoffs_.end() ? 0 : found->second;
  }
  // The number of dispatches to prefill workers that say that the request is pinned.
  int pinned_prompts() const { return pinned_prompts_; }
  // This worker has no free blocks for hand-offs until `until`.
  void FillUntil(const std::string& name, Time until) { full_until_[name] = until; }
  // This worker reports OutOfRange for every request that it is to decode.
  void RefuseForGood(const std::string& name) { unable_.insert(name); }
  // The decode workers of the ConnectCommands that the worker received since it last started.
  const std::set<std::string>& MetBy(const std::string& name) const;
  void Submit(std::shared_ptr<const RequestSpec> spec);
  void StopSample(RequestId id, int32_t sample) {
    core_->StopSample(id, sample, now_);
    CarryOut();
  }
  void Cancel(RequestId id, const Status& why) {
    core_->Cancel(id, why, now_);
    CarryOut();
  }
  Status Drain(const std::string& name) {
    Status status = core_->Drain(WorkerId(name), false, now_);
    CarryOut();
    return status;
  }
  // Calls Tick of the core. No message arrives before.
  void Tick() {
    core_->Tick(now_);
    CarryOut();
  }
  void Step();
  // Runs until every request has ended; false after `limit_ms`.
  bool RunUntilDone(int limit_ms);
  // Ends all faults and runs until all messages have arrived.
  void Settle();
  void Kill(const std::string& name) { Kill(name, 50 + static_cast<int>(random_() % 500)); }
  // Ends the worker's process. A new one joins after `down_ms`.
  void Kill(const std::string& name, int down_ms);
  // Breaks the worker's stream to the router. The same process joins again after `down_ms`.
  void CutStream(const std::string& name, int down_ms);
  void Stall(const std::string& name, int ms);
  // Stops the router and all workers for `time`.
  void Pause(Duration time) { now_ += time; }

  struct Client {
    std::shared_ptr<const RequestSpec> spec;
    std::vector<std::vector<TokenId>> tokens;
    std::vector<FinishReason> finish;
    std::optional<Outcome> outcome;
  };

  RouterCore& core() { return *core_; }
  Time now() const { return now_; }
  std::map<RequestId, Client>& clients() { return clients_; }
  std::mt19937_64& random() { return random_; }
  // Number of parts of requests that workers still have; 0 after Settle() unless the router forgot
  // a Cancel.
  size_t WorkLeft() const;
  int64_t bookings() const;
  // Whether the worker has a part of the request that is neither ended nor cancelled.
  bool Has(const std::string& name, RequestId id) const;
  // Number of tokens that workers computed for one sample, also tokens that the router dropped.
  int tokens_made(RequestId id, int32_t sample) const;
  int count(RequestKind kind) const { return kinds_.at(static_cast<size_t>(kind)); }

 private:
  using Key = std::pair<RequestId, Epoch>;
  struct Job {
    DispatchCommand dispatch;
    std::vector<int32_t> next;   // index of each sample's next token
    std::set<int32_t> stopped;   // samples that a StopSampleCommand has stopped
    bool running = false;        // computes tokens
    bool parked = false;         // prefill: its hand-off was refused; waits for a Redirect
    Time cancelled_at = kNever;  // time at which a cancel takes effect
    int32_t wait_ms = 0;
  };
  struct Kv {
    Time arrives{};
    std::string to;
    uint64_t boot = 0;
    SessionId session;
    std::vector<int32_t> next;
    bool nothing = false;  // the first token ended every sample
  };
  struct Worker {
    std::string name;
    bool prefill = false;
    bool decode = false;
    int32_t blocks = 0;
    uint64_t boot = 0;
    bool same_life = false;  // keeps its boot id when it joins again
    WorkerSlot slot = kNoWorker;
    bool alive = true;
    Time stalled_until{};
    Time restart_at{};
    Time next_heartbeat{};
    Time out_arrives{};  // arrival of the last message to the router
    Time in_arrives{};   // arrival of the last message to the worker
    std::deque<std::pair<Time, WorkerCommand>> inbox;
    std::deque<std::pair<Time, WorkerReport>> outbox;
    std::deque<std::pair<Time, WorkerReport>> noticed;  // reports to be sent at a time
    std::map<Key, Job> jobs;
    std::map<SessionId, Kv> early_kv;   // KV that arrived before its dispatch
    std::map<SessionId, Key> sessions;  // kDecode jobs that wait for KV
    std::set<std::string> met;          // MetBy; cleared at a join
  };

  // Carries out the actions of the core. To be called after each input.
  void CarryOut();
  void Send(WorkerSlot slot, WorkerCommand command);
  void Deliver(RequestId id, ClientEvent event);
  bool Happens(double probability);
  Duration Delay();
  void Join(Worker& worker);
  void Work(Worker& worker);
  void Obey(Worker& worker, const WorkerCommand& command);
  void Report(Worker& worker, WorkerReport report);
  void Generate(Worker& worker, const Key& key, Job& job, WorkerReport& report);
  static RequestId OriginOf(const Request& request);
  int32_t LimitOf(const Request& request) const;
  bool Emit(const Worker& worker,
            const Job& job,
            int32_t sample,
            int32_t index,
            bool first,
            WorkerReport& report);
  void Fail(Worker& worker, const Key& key, const Status& status, bool retryable);
  void FailStep(Worker& worker);
  bool RunsDeadly(const Worker& worker) const;
  bool Accepts(Worker& worker, const DispatchCommand& dispatch);
  void Redirect(Worker& worker, const RedirectCommand& redirect);
  const Cut* FindCut(const Worker& worker, const std::string& peer) const;
  Status WhyRefused(const Worker& worker, const std::string& peer);
  Status WhyFailed(const Worker& worker, const std::string& peer);
  void Handoff(Worker& worker, Job& job);
  void SendKv(const Job& job, bool nothing);
  void Arrive(Worker& worker, const Kv& kv);

  const CoreOptions options_;
  Chaos chaos_;
  std::mt19937_64 random_;
  Time now_{std::chrono::hours(1)};
  std::unique_ptr<RouterCore> core_;
  CoreActions actions_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::map<RequestId, Client> clients_;
  std::vector<Kv> fabric_;
  std::set<std::string> broken_;
  std::set<std::string> nondeterministic_;
  std::set<std::pair<std::string, int32_t>> wrong_;
  std::vector<ReplayResult> replays_;
  std::set<std::string> unable_;
  std::map<std::pair<std::string, std::string>, Cut> severed_;
  std::map<std::pair<std::string, std::string>, int> handoffs_;
  int pinned_prompts_ = 0;
  std::map<std::string, Time> full_until_;
  std::optional<RequestId> poison_;
  std::optional<std::pair<RequestId, bool>> deadly_;
  int deaths_ = 0;
  std::array<int, 3> kinds_{};
  std::map<std::pair<RequestId, int32_t>, int> made_;
  uint64_t boots_ = 0;
};

}  // namespace baton::router
