#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <absl/container/flat_hash_map.h>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/cluster/stall_watch.h"
#include "router/core/core_actions.h"
#include "router/core/replays.h"
#include "router/core/request_machine.h"
#include "router/core/service_time.h"
#include "router/core_options.h"
#include "router/routing/placement.h"
#include "router/types.h"
#include "router/workers/decode_arenas.h"
#include "router/workers/join_check.h"
#include "router/workers/prefix_index.h"
#include "router/workers/refused_joins.h"
#include "router/workers/worker_book.h"

namespace baton::router {

// Of clients' requests; replays are not counted.
struct CoreCounts {
  int32_t waiting = 0;  // requests without a token yet
  int32_t running = 0;  // requests with a token
  int64_t index_entries = 0;
};

// All decisions of the router: which workers belong to the cluster, their load and caches, the
// workers of each request, and the reaction to failures. Pure: no I/O, threads or clock; every
// input carries the time, and TakeActions() returns the actions. Used by one thread (CoreLoop, or a
// test).
class RouterCore final {
 public:
  explicit RouterCore(const CoreOptions& options);
  ~RouterCore();

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
  // Forgets what the workers have cached, and has them remove it from their prefix caches.
  void ResetCaches(Time now);

  // To be called at next_wake().
  void Tick(Time now);
  Time next_wake() const;

  // Replaces the contents of `actions` with the actions since the last call. To be called after
  // each input. The core continues with the memory of `actions`, so that a caller who always passes
  // the same object causes no allocations.
  void TakeActions(CoreActions& actions) {
    actions.commands.clear();
    actions.events.clear();
    actions.pair_changes.clear();
    actions.stall = StallWatch::Change::kNone;
    actions.replays.clear();
    std::swap(actions, actions_);
  }

  // nullopt until the first worker has joined.
  const std::optional<ClusterIdentity>& identity() const { return identity_; }
  const WorkerBook& workers() const { return book_; }
  DecodeArenas decode_arenas() const;
  const RefusedJoins& refused_joins() const { return refused_joins_; }
  const PairBook& pairs() const { return placement_.pairs(); }
  // How long clients' requests have waited while nothing ran on any worker. Zero: no stall.
  Duration stalled() const { return stall_.stalled(); }
  CoreCounts Counts() const;
  // Replays that run, and finished requests that wait for their replay.
  const Replays& replays() const { return replays_; }
  // OK when a worker that can decode is ready; else Unavailable with the reason.
  Status Ready() const { return placement_.Ready(now_); }

 private:
  struct Live {
    std::unique_ptr<RequestMachine> machine;
    Time since{};
    Time wake = kNever;
  };

  template <class F>
  void With(RequestId id, F&& call);
  void NoteSuspect(RequestId id, const RequestMachine& machine);
  void WakeSuspect();
  void Send(WorkerSlot slot, WorkerCommand command);
  void WakeUnplaced(BootId back);
  void WakeUnplacedPrompts();
  Status CheckJoin(const WorkerInfo& info, WorkerSlot old) const;
  void AnnouncePeers(WorkerSlot slot);
  void WorkerLost(WorkerSlot slot);
  void Revive(WorkerSlot slot);
  int64_t ClientRequests() const;
  void OnEnd(const Live& live);
  void Start(std::shared_ptr<const RequestSpec> spec);
  void TakeReplayActions();
  void WatchForStall();
  void StartReplays();
  void DropReplays(std::string_view why);
  void FeedIndex(WorkerSlot slot, const WorkerReport& report);

  const CoreOptions options_;
  Time now_{};
  CoreActions actions_;
  WorkerBook book_;
  PrefixIndex index_;
  // The properties of the joined workers; nullopt until the first has joined.
  std::optional<ClusterIdentity> identity_;
  Placement placement_;
  RefusedJoins refused_joins_;
  StallWatch stall_;
  Replays replays_;
  CoreActions replay_actions_;  // of replays' machines
  absl::flat_hash_map<RequestId, Live> live_;
  std::set<std::pair<Time, RequestId>> wakes_;
  bool suspect_left_ = false;  // a worker, since the last tick
  ServiceTime times_;          // of requests that had at least one token
  Time next_tick_{};
  Time last_tick_ = kNever;
};

}  // namespace baton::router
