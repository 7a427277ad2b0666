#pragma once

#include <cstdint>
#include <map>
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
  uint64_t tag = 0;  // the upper 24 bits of all ids that this router creates
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

// Receives the core's decisions. Called during the core's methods; must not block and must not call
// the core.
class CoreOutput {
 public:
  virtual ~CoreOutput() = default;
  virtual void ToWorker(WorkerSlot slot, WorkerCommand command) = 0;
  virtual void ToClient(RequestId id, ClientEvent event) = 0;
};

struct CoreCounts {
  int32_t waiting = 0;  // requests without a token yet
  int32_t running = 0;  // requests with a token
  int64_t index_entries = 0;
};

// All decisions of the router: which workers belong to the cluster, their load and caches, the
// workers of each request, and the reaction to failures. Pure: time comes in as a value, effects go
// out through CoreOutput. Used by one thread (CoreLoop, or a test).
class RouterCore final : private RequestHost {
 public:
  // `output` outlives the core.
  RouterCore(const CoreOptions& options, CoreOutput& output);
  ~RouterCore() override;

  // Adds a worker whose stream has begun. Errors: FailedPrecondition when its model or secret is
  // not the router's, or when it does not match the joined workers (both sides are printed);
  // AlreadyExists when a live worker has its id; ResourceExhausted when kMaxWorkers have joined.
  StatusOr<WorkerSlot> Join(WorkerInfo info, Time now);
  // Records that a stream was refused, by Join or before it. True when the refusal should be
  // logged.
  bool Refuse(const WorkerId& id, const std::string& address, const Status& why, Time now) {
    return refused_joins_.Add(id, address, why, now);
  }
  void OnReport(WorkerSlot slot, const WorkerReport& report, Time now);
  // Removes a worker whose stream has ended.
  void Leave(WorkerSlot slot, Time now);
  // Drains a worker. `keep`: the process keeps running when it has no requests left. NotFound when
  // no worker with this id has joined.
  Status Drain(const WorkerId& id, bool keep, Time now);

  // Starts a request. Every submitted request ends with one Outcome; a refused one ends at once.
  void Submit(std::shared_ptr<const RequestSpec> spec, Time now);
  void StopSample(RequestId id, int32_t sample, Time now);
  void Cancel(RequestId id, const Status& why, Time now);
  void CancelAll(const Status& why, Time now);

  // To be called at next_wake().
  void Tick(Time now);
  Time next_wake() const;

  // nullopt until the first worker has joined.
  const std::optional<ClusterIdentity>& identity() const { return identity_; }
  const WorkerBook& workers() const { return book_; }
  DecodeArenas decode_arenas() const;
  const RefusedJoins& refused_joins() const { return refused_joins_; }
  CoreCounts Counts() const;
  // OK when a worker that can decode is ready; else Unavailable with the reason.
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
  void NoteOutOfReach(WorkerSlot prefill, WorkerSlot decode) override;
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
  void AnnouncePeers(WorkerSlot slot);
  void WorkerLost(WorkerSlot slot);
  void Revive(WorkerSlot slot);
  void FeedIndex(WorkerSlot slot, const WorkerReport& report);
  void Learn(const HandoffReport& report);
  RouteQuery LookUp(const PlaceQuery& query);
  void Gather(const PlaceQuery& query,
              std::vector<Candidate>& out,
              bool prefill,
              WorkerSlot except);
  bool OutOfReach(WorkerSlot prefill, WorkerSlot decode) const;
  bool DropOutOfReach(const Route& chosen);
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
  // The pairs (prefill, decode) of workers between which a hand-off has committed.
  std::set<std::pair<WorkerSlot, WorkerSlot>> handed_over_;
  // The pairs (prefill, decode) of NoteOutOfReach, each with the time when the note expires.
  std::map<std::pair<WorkerSlot, WorkerSlot>, Time> out_of_reach_until_;
  absl::flat_hash_map<RequestId, Live> live_;
  // Suspects that are dispatched to workers. May contain former suspects until the next call of
  // their RequestMachine.
  std::set<RequestId> placed_suspects_;
  std::set<std::pair<Time, RequestId>> wakes_;
  Time next_tick_{};
  Time last_tick_ = kNever;
  uint64_t sessions_ = 0;

  // Work space for the request that is being placed.
  std::span<const Hash128> hashes_;
  std::vector<Hash128> own_hashes_;
  std::vector<int32_t> depth_;
  std::vector<Candidate> prefill_;
  std::vector<Candidate> decode_;

  // Learned from hand-offs and finished requests: exponential averages.
  double kv_bytes_per_token_ = 0;
  double transfer_bytes_per_second_ = 0;
  double output_tokens_ = 64;
};

}  // namespace baton::router
