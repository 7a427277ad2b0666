#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/cluster/reports.h"
#include "common/cluster/stall_watch.h"
#include "common/engine/engine.h"
#include "common/engine/engine_loop.h"
#include "common/metrics/metrics.h"
#include "common/rpc/closing_streams.h"
#include "common/worker/request_book.h"
#include "common/worker/worker_link_clients.h"
#include "common/worker/worker_loop.h"
#include "common/worker/worker_probe.h"
#include "common/worker/worker_role.h"
#include "kernels/dma.h"
#include "kvtransfer/group/shard_port.h"

namespace baton {

struct WorkerOptions {
  WorkerId id;
  std::string model;  // the name that clients use
  Hash128 shape;      // ShapeHash of the model's spec; a router compares it with its own
  Hash128 tokenizer;  // hash of the tokenizer; a router compares it. Zero: not known here
  Hash128 weights;    // WorkerInfo::weights
  std::string admin_address;
  std::string program_version;
  bool deterministic = true;  // WorkerInfo::deterministic
  EngineOptions engine;
  RouterTargets routers;
  ConnectionLimits limits;
  // Of the model's vocabulary; outlives the worker. Null: constrained requests are refused.
  GrammarCompiler* grammars = nullptr;
  Dma* dma = nullptr;  // Backend::dma of the executor's device, for the roles; outlives the worker
  // Reaches the arenas of ranks on other hosts, for the roles; null: there are none. Outlives the
  // worker.
  ShardPort* shard_port = nullptr;
};

// The part that every worker has, whatever its roles: an engine on its own thread, links to
// routers, and the request book that connects them. A Worker serves requests of kind kServe alone;
// its roles do the hand-offs.
//
// Order of use: Create, SetRole, Start, then Stop before destruction. One thread calls these and
// Drain; another may call Stop during Drain. Ready, Failure and Finished may be called on any
// thread. Everything else runs on the worker's thread, unless stated otherwise.
class Worker final : private EngineListener, private RouterEvents {
 public:
  // Errors: those of Engine::Create. References outlive the worker.
  static StatusOr<std::unique_ptr<Worker>> Create(WorkerOptions options,
                                                  Executor& executor,
                                                  MetricsRegistry& metrics,
                                                  const Clock& clock);
  ~Worker() override;

  // Sets the role that handles requests of `kind`, kPrefill or kDecode. Called before Start.
  // `kv_address`: where the decode role accepts control streams; empty for prefill.
  void SetRole(RequestKind kind, std::unique_ptr<WorkerRole> role, const std::string& kv_address);

  // InvalidArgument when there is no router target, or when one is malformed.
  Status Start();
  // OK when a router is joined. Failure() when that is not OK; else Unavailable with the reason.
  Status Ready() const;
  // Not OK after the engine failed for good: the reason. The failure of every request has been
  // reported to its router by then, and the links are ending.
  Status Failure() const;
  // True when a drain that a router requested has ended and the process is to exit.
  bool Finished() const;
  // Informs the routers and refuses new requests. Returns true when all requests and hand-offs have
  // ended, or false after `limit`. Hand-offs in quarantine are not waited for.
  bool Drain(Duration limit);
  // Stops everything now. A Drain in progress returns. The engine does not step any more
  // afterwards.
  void Stop();

  Engine& engine() { return *engine_; }
  const Executor& executor() const { return executor_; }
  WorkerLoop& loop() { return loop_; }
  const Clock& clock() const { return clock_; }
  WorkerProbe& probe() { return probe_; }
  const WorkerInfo& identity() const { return identity_; }
  Dma* dma() const { return options_.dma; }
  ShardPort* shard_port() const { return options_.shard_port; }
  // Of the connections to other processes of the cluster.
  const ConnectionLimits& limits() const { return options_.limits; }

  // For roles, on the worker's thread.
  void Report(RouterKey router, const HandoffReport& report);
  void ReportFailure(RouterKey router, RequestId id, Epoch epoch, const Status& status);
  // Cancels a request in the engine without a report: the router already knows that it has ended.
  void Drop(RequestId id, Epoch epoch);
  // As Drop, for a decode request that ended with its first token: it counts as done.
  void DropComplete(RequestId id, Epoch epoch);

 private:
  Worker(WorkerOptions options, Executor& executor, MetricsRegistry& metrics, const Clock& clock);

  // EngineListener, on the engine's thread or a thread of its device: posts each event to the
  // worker's thread.
  void OnTokens(std::span<const TokenOutput> tokens) override;
  void OnFinished(RequestId id, Epoch epoch, const RequestTimes& times) override;
  void OnOutputEnd() override;
  void OnFailed(const RequestFailure& failure) override;
  void OnPromptStarted(RequestId id, Epoch epoch) override;
  void OnKvLayers(const KvChunk& chunk, int32_t layers) override;
  void OnKvChunk(const KvChunk& chunk) override;
  void OnKvReserved(const KvReservation& reservation) override;
  void OnCacheEvent(const CacheEvent& event) override;
  void OnGaveUp(const Status& status) override;

  // RouterEvents.
  void OnDispatch(RouterKey router, DispatchCommand dispatch) override;
  void OnRedirect(RouterKey router, const RedirectCommand& redirect) override;
  void OnCancel(RouterKey router, const CancelCommand& cancel) override;
  void OnStopSample(RouterKey router, const StopSampleCommand& stop) override;
  void OnPeer(const Peer& peer) override;
  void OnSnapshotWanted(bool clear) override;
  void OnDrain(bool keep) override;
  void OnRouterLost(RouterKey router) override;
  WorkerLoad Load() override;

  // What one step of the engine gives to clients.
  struct StepOutput {
    std::vector<TokenOutput> tokens;
    std::vector<FinishedReport> finished;
  };

  void DeliverTokens(std::span<const TokenOutput> tokens);
  void DeliverEnd(RequestId id, Epoch epoch, const Status& status, const RequestTimes& times);
  void DeliverCacheEvent(const CacheEvent& event);
  WorkerRole* RoleOf(RequestKind kind) const;
  void BeginDrain(const std::string& reason);
  void Fail(const Status& status);
  void AfterBatch();
  void OnTick(Time now);
  void WatchForStall(Time now);

  const WorkerOptions options_;
  const Executor& executor_;
  const Clock& clock_;
  WorkerProbe probe_;
  WorkerInfo identity_;
  WorkerLoop loop_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<EngineLoop> engine_loop_;
  ClosingStreams closing_;
  std::unique_ptr<WorkerLinkClients> links_;
  std::unique_ptr<WorkerRole> prefill_;
  std::unique_ptr<WorkerRole> decode_;

  StepOutput output_;  // used by the engine's thread

  RequestBook book_;
  Hash128 digest_;
  uint64_t digest_sequence_ = 0;
  std::atomic<bool> draining_{false};
  int32_t blocks_quarantined_ = 0;
  StallWatch stall_;

  mutable std::mutex idle_mutex_;
  std::condition_variable idle_changed_;
  bool idle_ = false;            // draining, and all requests and hand-offs have ended
  bool ends_when_idle_ = false;  // the process exits when idle_ becomes true
  bool stopped_ = false;
  Status failure_;
};

}  // namespace baton
