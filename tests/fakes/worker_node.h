#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/engine/executor.h"
#include "common/metrics/metrics.h"
#include "common/worker/worker.h"
#include "kvtransfer/options.h"
#include "kvtransfer/transport.h"
#include "proto/config.pb.h"
#include "tests/fakes/fake_executor.h"

namespace baton {

struct NodeOptions {
  std::string id = "worker";
  std::string router;  // address of the router
  bool prefill = false;
  bool decode = false;
  std::string transport = "shm";
  // See KvTransferOptions.
  std::function<StatusOr<std::unique_ptr<Transport>>(std::string_view name)> make_transport;
  SessionTimes times;
  EngineOptions engine;
  KvOptions kv;
  FakeExecutor::Shape shape;
  Duration match_wait = std::chrono::seconds(10);
  Duration redirect_wait = std::chrono::seconds(10);
  size_t max_unmatched_offers = 4096;
  uint64_t receive_rate_while_computing = 0;  // as DecodeOptions
};

// One worker inside a test: real engine, real hand-offs and real gRPC, with a fake model whose
// tokens reveal every KV fault. The constructor starts the worker. Stop or the destructor stops it
// and checks that the engine's blocks are accounted for.
class WorkerNode final {
 public:
  explicit WorkerNode(const NodeOptions& options);
  // With an executor of the test, which outlives the worker. model() must not be called then.
  WorkerNode(const NodeOptions& options, Executor& executor);
  ~WorkerNode() { Stop(); }

  const std::string& id() const { return options_.id; }
  const std::string& kv_address() const { return worker_->identity().kv_address; }
  uint64_t boot() const { return worker_->identity().boot.value(); }
  Worker& worker() { return *worker_; }
  MetricsRegistry& metrics() { return metrics_; }
  const FakeExecutor& model() const { return *model_; }
  FakeExecutor& model() { return *model_; }

  // Stops the worker without a drain, then checks that all of the engine's blocks are accounted
  // for.
  void Stop();
  // Waits until no lease and no request is left, then checks that every block is free or cached.
  void ExpectNothingHeld();

 private:
  void Start(Executor& executor);

  const NodeOptions options_;
  // In shared memory, as the shm transport and other processes need. Null with another executor.
  const std::unique_ptr<FakeExecutor> model_;
  MetricsRegistry metrics_;
  SteadyClock clock_;
  std::unique_ptr<Worker> worker_;
  bool stopped_ = false;
};

}  // namespace baton
