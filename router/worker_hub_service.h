#pragma once

#include "proto/worker.grpc.pb.h"
#include "router/core_loop.h"
#include "router/hub_link.h"

namespace baton::router {

// The service to which workers connect, with one stream per worker (worker.proto, WorkerHub).
// Thread-safe.
class WorkerHubService final : public worker::v1::WorkerHub::CallbackService {
 public:
  // `core` outlives the service and its server.
  WorkerHubService(HubOptions options, CoreLoop& core)
      : options_(std::move(options)), core_(core) {}

  grpc::ServerBidiReactor<worker::v1::ToRouter, worker::v1::ToWorker>* Link(
      grpc::CallbackServerContext* context) override;

 private:
  const HubOptions options_;
  CoreLoop& core_;
};

}  // namespace baton::router
