#pragma once

#include "proto/worker.grpc.pb.h"
#include "router/core_loop.h"
#include "router/worker_link_server.h"

namespace baton::router {

// The service to which workers connect, with one stream per worker (worker.proto, WorkerLink).
// Thread-safe.
class WorkerLinkService final : public worker::v1::WorkerLink::CallbackService {
 public:
  // `core` outlives the service and its server.
  WorkerLinkService(Welcome welcome, CoreLoop& core) : welcome_(std::move(welcome)), core_(core) {}

  grpc::ServerBidiReactor<worker::v1::ToRouter, worker::v1::ToWorker>* Open(
      grpc::CallbackServerContext* context) override;

 private:
  const Welcome welcome_;  // for every worker that joins
  CoreLoop& core_;
};

}  // namespace baton::router
