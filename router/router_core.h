#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "router/decode_arenas.h"
#include "router/join_check.h"
#include "router/prefix_index.h"
#include "router/refused_joins.h"
#include "router/request_machine.h"
#include "router/routing_policy.h"
#include "router/types.h"
#include "router/worker_book.h"

namespace baton::router {

struct CoreOptions {
  uint64_t tag = 0;  // this router's range of ids: the upper 24 bits
  uint64_t hash_secret = 0;
  OwnModel model;
  int32_t max_requests = 4096;
  int32_t local_tokens = 0;
  size_t index_capacity = 1 << 20;
  Duration suspect_after = std::chrono::milliseconds(1500);
  Duration lost_after = std::chrono::milliseconds(3000);
  RetryLimits retry;
  PolicyKind policy = PolicyKind::kCost;
  uint64_t seed = 1;
};

// Where the core's decisions go. Called during the core's methods; must not block or call back.
class CoreOutput {
 public:
  virtual ~CoreOutput() = default;
  virtual void ToWorker(WorkerSlot slot, WorkerCommand command) = 0;
  virtual void ToClient(RequestId id, ClientEvent event) = 0;
};

struct CoreCounts {
  int32_t waiting = 0;  // without a token yet
  int32_t running = 0;
  int64_t index_entries = 0;
};

// All of the router's decisions: who the workers are, what they hold and do, where each request
// goes, and what to do when something fails. Pure: time comes in as a value, effects go out through
// CoreOutput. Used by one thread (CoreLoop, or a test).
class RouterCore final : private RequestHost {
 public:
  // `output` outlives the core.
  RouterCore(const CoreOptions& options, CoreOutput& output);
  ~RouterCore() override;

  // A worker's stream began. Errors: FailedPrecondition when its model or secret is not the
  // router's, or it does not fit the workers there are (both sides printed), AlreadyExists when its
  // id is taken by a live worker, ResourceExhausted.
  StatusOr<WorkerSlot> Join(WorkerInfo info, Time now);
  // A stream was refused before it could Join, or by it. True when the log should hear of it.
  bool Refuse(const WorkerId& id, const std::string& address, const Status& why, Time now) {
    return refused_joins_.Add(id, address, why, now);
  }
  void OnReport(WorkerSlot slot, const WorkerReport& report, Time now);
  // Its stream ended.
  void Leave(WorkerSlot slot, Time now);
  // `keep`: its process stays when it has nothing left. NotFound when no such worker has joined.
  Status Drain(const WorkerId& id, bool keep, Time now);

  // Every submitted request ends with an Outcome, at once when it is refused.
  void Submit(std::shared_ptr<const RequestSpec> spec, Time now);
  void StopSample(RequestId id, int32_t sample, Time now);
  void Cancel(RequestId id, const Status& why, Time now);
  void CancelAll(const Status& why, Time now);

  // Call when next_wake() has come.
  void Tick(Time now);
  Time next_wake() const;

  // Nothing before the first worker joined.
  const std::optional<ClusterIdentity>& identity() const { return identity_; }
  const WorkerBook& workers() const { return book_; }
  DecodeArenas decode_arenas() const;
  const RefusedJoins& refused_joins() const { return refused_joins_; }
  CoreCounts Counts() const;
  // OK when a request could be placed now; else Unavailable saying what is missing.
  Status Ready() const;

 private:
  struct Live {
    std::unique_ptr<RequestMachine> machine;
    Time wake = kNever;
  };

  StatusOr<std::optional<Assignment>> Place(const PlaceQuery& query) override;
  WorkerSlot PlaceDecode(const PlaceQuery& query, WorkerSlot prefill) override;
  std::string WhyNoPlace(bool suspect) const override;
  bool HandedOver(WorkerSlot prefill, WorkerSlot decode) const override;
  void NoteHandOver(WorkerSlot prefill, WorkerSlot decode) override;
  SessionId NewSession() override;
  Peer PeerOf(WorkerSlot slot) const override;
  void Send(WorkerSlot slot, WorkerCommand command) override;
  void PromptDone(WorkerSlot slot, RequestId id, Epoch epoch) override;
  void Release(WorkerSlot slot, RequestId id, Epoch epoch) override;
  void Deliver(RequestId id, ClientEvent event) override;

  template <class F>
  void With(RequestId id, F&& call);
  void WakeUnplaced(BootId back);
  Status CheckJoin(const WorkerInfo& info, WorkerSlot old) const;
  void Introduce(WorkerSlot slot);
  void WorkerLost(WorkerSlot slot);
  void Revive(WorkerSlot slot);
  void FeedIndex(WorkerSlot slot, const WorkerReport& report);
  void Learn(const HandoffReport& report);
  RouteQuery LookUp(const PlaceQuery& query);
  void Gather(const PlaceQuery& query,
              std::vector<Candidate>& out,
              bool prefill,
              WorkerSlot except);
  bool Fits(const WorkerInfo& info, int64_t tokens) const;
  bool CouldHold(const PlaceQuery& query) const;
  bool HasSuspect(WorkerSlot slot, RequestId except) const;
  Status TooLong(const PlaceQuery& query) const;
  void BookDispatch(WorkerSlot slot, const DispatchCommand& dispatch);

  const CoreOptions options_;
  CoreOutput& output_;
  Time now_{};
  WorkerBook book_;
  PrefixIndex index_;
  const std::unique_ptr<RoutingPolicy> policy_;
  RefusedJoins refused_joins_;
  std::optional<ClusterIdentity> identity_;
  std::set<std::pair<WorkerSlot, WorkerSlot>> handed_over_;  // prefill, decode
  absl::flat_hash_map<RequestId, Live> live_;
  std::set<RequestId> placed_suspects_;  // and such as were, until they are next called
  std::set<std::pair<Time, RequestId>> wakes_;
  Time next_tick_{};
  Time last_tick_ = kNever;
  uint64_t sessions_ = 0;

  // Of the request being placed.
  std::span<const Hash128> hashes_;
  std::vector<Hash128> own_hashes_;
  std::vector<int32_t> depth_;
  std::vector<Candidate> prefill_;
  std::vector<Candidate> decode_;

  // Learned: exponential averages.
  double kv_bytes_per_token_ = 0;
  double transfer_gigabytes_per_second_ = 0;
  double output_tokens_ = 64;
};

}  // namespace baton::router
