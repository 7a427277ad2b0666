#pragma once

#include <memory>
#include <utility>

#include "common/base/peer_proof.h"
#include "proto/worker.grpc.pb.h"
#include "router/links/worker_link_server.h"
#include "router/loop/core_loop.h"

namespace baton::router {

// The service to which workers connect, with one stream per worker (worker.proto, WorkerLink).
// Thread-safe.
class WorkerLinkService final : public worker::v1::WorkerLink::CallbackService {
 public:
  // `core` outlives the service and its server. `proofs`: how workers prove that they belong to the
  // cluster; null: they do not.
  WorkerLinkService(Welcome welcome, CoreLoop& core, std::shared_ptr<const PeerProofs> proofs)
      : welcome_(std::move(welcome)), core_(core), proofs_(std::move(proofs)) {}

  grpc::ServerBidiReactor<worker::v1::ToRouter, worker::v1::ToWorker>* Open(
      grpc::CallbackServerContext* context) override;

 private:
  const Welcome welcome_;  // for every worker that joins
  CoreLoop& core_;
  const std::shared_ptr<const PeerProofs> proofs_;
};

}  // namespace baton::router
