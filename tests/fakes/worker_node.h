#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/engine/local_executor.h"
#include "common/metrics/metrics.h"
#include "common/worker/worker.h"
#include "kernels/cpu/cpu_device.h"
#include "kvtransfer/options.h"
#include "kvtransfer/transport.h"
#include "proto/config.pb.h"
#include "tests/fakes/fake_model.h"

namespace baton {

// A FakeModel whose KV arena is shared memory, as the shm transport and other processes need.
class SharedFakeModel final : public ModelRunner {
 public:
  explicit SharedFakeModel(const FakeModel::Shape& shape) : model_(shape) {}
  const ModelTraits& traits() const override { return model_.traits(); }
  Device& device() override { return device_; }
  bool queues_steps() const override { return model_.queues_steps(); }
  int32_t stages() const override { return model_.stages(); }
  Status Issue(const StepInput& input,
               const KvView& kv,
               std::span<const SamplingRow> sampling,
               std::span<SampledToken> out,
               const LayerWatch& watch) override {
    return model_.Issue(input, kv, sampling, out, watch);
  }
  bool samples_later() const override { return model_.samples_later(); }
  Status IssueSampling(std::span<const SamplingRow> sampling,
                       std::span<SampledToken> out) override {
    return model_.IssueSampling(sampling, out);
  }
  bool has_late_rows() const override { return model_.has_late_rows(); }
  Status Await() override { return model_.Await(); }
  Status CopyBlocks(const KvView& kv, std::span<const BlockCopy> copies) override {
    return model_.CopyBlocks(kv, copies);
  }
  const FakeModel& model() const { return model_; }
  FakeModel& model() { return model_; }

 private:
  FakeModel model_;
  CpuDevice device_;
};

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
  FakeModel::Shape shape;
  Duration match_wait = std::chrono::seconds(10);
  Duration redirect_wait = std::chrono::seconds(10);
  size_t max_unmatched_offers = 4096;
  uint64_t receive_rate_while_computing = 0;  // as DecodeOptions
};

// One worker inside a test: real engine, real hand-offs and real gRPC, with a fake model whose
// tokens reveal every KV fault, or with `runner` when given. The constructor starts the worker.
// Stop or the destructor stops it and checks that the engine's blocks are accounted for.
class WorkerNode final {
 public:
  explicit WorkerNode(const NodeOptions& options, ModelRunner* runner = nullptr);
  // With an executor of the test, which outlives the worker.
  WorkerNode(const NodeOptions& options, Executor& executor);
  ~WorkerNode() { Stop(); }

  const std::string& id() const { return options_.id; }
  const std::string& kv_address() const { return worker_->identity().kv_address; }
  uint64_t boot() const { return worker_->identity().boot.value(); }
  Worker& worker() { return *worker_; }
  MetricsRegistry& metrics() { return metrics_; }
  const FakeModel& model() const { return model_.model(); }
  FakeModel& model() { return model_.model(); }

  // Stops the worker without a drain, then checks that all of the engine's blocks are accounted
  // for.
  void Stop();
  // Waits until no lease and no request is left, then checks that every block is free or cached.
  void ExpectNothingHeld();

 private:
  void Start(Executor& executor);

  const NodeOptions options_;
  SharedFakeModel model_;
  MetricsRegistry metrics_;
  SteadyClock clock_;
  std::unique_ptr<LocalExecutor> executor_;
  std::unique_ptr<Worker> worker_;
  bool stopped_ = false;
};

}  // namespace baton
