#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "common/base/check.h"
#include "router/frontend/request_frontend.h"
#include "router/loop/core_loop.h"
#include "tests/fakes/byte_model.h"
#include "tests/unit/router/idle_worker.h"

namespace baton::router {

// A frontend with a core and one idle worker, whose reports the test writes.
class FrontendHarness final {
 public:
  FrontendHarness() {
    core_.Join(IdleWorker(), worker_, [](const StatusOr<WorkerSlot>& slot) {
      BATON_CHECK(slot.ok(), "{}", Message(slot.status()));
    });
  }

  RequestFrontend& frontend() { return frontend_; }
  IdleWorkerLink& worker() { return *worker_; }

  // Starts `request`, the only one of the harness, and waits until the worker receives it.
  DispatchCommand Start(GenerationRequest request, std::shared_ptr<GenerationObserver> observer) {
    running_ = frontend_.Start(std::move(request), std::move(observer));
    std::future<DispatchCommand> dispatched = worker_->dispatched();
    const auto state = dispatched.wait_for(std::chrono::seconds(60));
    BATON_CHECK(state == std::future_status::ready, "the request was not dispatched within 60 s");
    return dispatched.get();
  }
  // The worker sends `report`.
  void Report(WorkerReport report) { core_.Report(worker_, std::move(report)); }

 private:
  const ByteModel model_ = ByteModel::WithoutWeights(64);
  const std::unique_ptr<ModelText> text_ = ModelText::Load(model_.path(), {}).value();
  MetricsRegistry metrics_;
  RouterProbe probe_{metrics_};
  const SteadyClock clock_;
  CoreLoop core_{CoreOptions{}, clock_, probe_};
  RequestFrontend frontend_{{}, *text_, core_, clock_, probe_};
  const std::shared_ptr<IdleWorkerLink> worker_ = std::make_shared<IdleWorkerLink>();
  std::shared_ptr<Generation> running_;
};

}  // namespace baton::router
