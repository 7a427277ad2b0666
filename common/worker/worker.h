#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/engine/engine.h"
#include "common/engine/engine_loop.h"
#include "common/metrics/metrics.h"
#include "common/worker/request_book.h"
#include "common/worker/router_links.h"
#include "common/worker/worker_loop.h"
#include "common/worker/worker_probe.h"
#include "common/worker/worker_role.h"
#include "kernels/dma.h"

namespace baton {

struct WorkerOptions {
  WorkerId id;
  std::string model;  // the name clients use
  Hash128 shape;      // of its spec and of its tokenizer, for routers to compare with their own
  Hash128 tokenizer;  // zero: not known here
  std::string admin_address;
  EngineOptions engine;
  RouterTargets routers;
  ConnectionLimits limits;
  Dma* dma = nullptr;  // of the runner's device (Backend::dma), for roles; outlives the worker
};

// What every worker is, whatever its roles: an engine on its thread, links to routers, and the book
// of requests that joins them. Serves whole requests by itself; hand-offs belong to its roles.
//
// Made by Create, completed by SetRole, brought to life by Start; Stop before destruction. Those
// and the roles' methods on the thread of their caller as stated there; the rest on the worker's
// thread.
class Worker final : private EngineListener, private RouterEvents {
 public:
  // Errors: those of Engine::Create. References outlive the worker.
  static StatusOr<std::unique_ptr<Worker>> Create(WorkerOptions options,
                                                  ModelRunner& runner,
                                                  MetricsRegistry& metrics,
                                                  const Clock& clock);
  ~Worker() override;

  // The role of kPrefill or kDecode requests, before Start. `kv_address`: where the decode role
  // takes control streams; empty for prefill.
  void SetRole(RequestKind kind, std::unique_ptr<WorkerRole> role, const std::string& kv_address);

  // InvalidArgument for router targets that cannot be any.
  Status Start();
  // Unavailable while no router is joined, saying why; Failure() when that is not OK.
  Status Ready() const;
  // Why the engine gave up. By then the routers were told of every request, and their links end.
  Status Failure() const;
  // A router had it drained, nothing is left, and its process is to end.
  bool Finished() const;
  // Tells the routers, takes nothing new, returns when all requests and hand-offs ended or `limit`
  // passed (false).
  bool Drain(Duration limit);
  // Ends everything now. A Drain in progress returns. Afterwards the engine is at rest.
  void Stop();

  Engine& engine() { return *engine_; }
  WorkerLoop& loop() { return loop_; }
  const Clock& clock() const { return clock_; }
  WorkerProbe& probe() { return probe_; }
  const WorkerIdentity& identity() const { return identity_; }
  Dma* dma() const { return options_.dma; }

  // For roles, on the worker's thread.
  void Report(RouterKey router, const HandoffReport& report);
  void ReportFailure(RouterKey router, RequestId id, Epoch epoch, const Status& status);
  // Cancels a request in the engine, of whose end the router has been told already.
  void Drop(RequestId id, Epoch epoch);
  // As Drop, of a request to decode that ended with its first token: the request counts as done.
  void DropComplete(RequestId id, Epoch epoch);

 private:
  Worker(WorkerOptions options, MetricsRegistry& metrics, const Clock& clock);

  // EngineListener, on the engine's thread or its device's: hands everything to the worker's
  // thread.
  void OnTokens(std::span<const TokenOutput> tokens) override;
  void OnFinished(RequestId id, Epoch epoch, const RequestTimes& times) override;
  void OnFailed(const RequestFailure& failure) override;
  void OnKvLayers(const KvChunk& chunk, int32_t layers) override;
  void OnKvChunk(const KvChunk& chunk) override;
  void OnKvReserved(const KvReservation& reservation) override;
  void OnCacheEvent(const CacheEvent& event) override;
  void OnGaveUp(const Status& status) override;

  // RouterEvents.
  void OnDispatch(DispatchOrder order) override;
  void OnRedirect(RouterKey router, const RedirectOrder& order) override;
  void OnCancel(RouterKey router, RequestId id, Epoch epoch, bool complete) override;
  void OnStopSample(RouterKey router, RequestId id, Epoch epoch, int32_t sample) override;
  void OnPeer(const KvPeer& peer) override;
  void OnSnapshotWanted() override;
  void OnDrainWanted(bool keep) override;
  void OnRouterLost(RouterKey router) override;
  LoadReport Load() override;

  void DeliverTokens(std::span<const TokenOutput> tokens);
  void DeliverEnd(RequestId id, Epoch epoch, const Status& status, const RequestTimes& times);
  void DeliverCacheEvent(const CacheEvent& event);
  WorkerRole* RoleOf(RequestKind kind) const;
  void BeginDrain(const std::string& reason);
  void Fail(const Status& status);
  void AfterBatch();
  void OnTick(Time now);

  const WorkerOptions options_;
  const Clock& clock_;
  WorkerProbe probe_;
  WorkerIdentity identity_;
  WorkerLoop loop_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<EngineLoop> engine_loop_;
  std::unique_ptr<RouterLinks> links_;
  std::unique_ptr<WorkerRole> prefill_;
  std::unique_ptr<WorkerRole> decode_;

  RequestBook book_;
  Hash128 digest_;
  uint64_t digest_sequence_ = 0;
  std::atomic<bool> draining_{false};
  int32_t blocks_quarantined_ = 0;

  mutable std::mutex idle_mutex_;
  std::condition_variable idle_changed_;
  bool idle_ = false;            // draining, and nothing is left
  bool ends_when_idle_ = false;  // the process
  bool stopped_ = false;
  Status failure_;
};

}  // namespace baton
