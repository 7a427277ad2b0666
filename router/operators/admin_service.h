#pragma once

#include <string>

#include "common/base/clock.h"
#include "common/rpc/call_gate.h"
#include "proto/admin.grpc.pb.h"
#include "router/frontend/request_frontend.h"
#include "router/loop/core_loop.h"
#include "router/router_probe.h"

namespace baton::router {

// The Admin service for operators: status and drain (admin.proto), and generation on
// the workers that an operator names. Logs who drains a worker.
// Thread-safe.
class AdminService final : public admin::v1::Admin::CallbackService {
 public:
  struct Identity {
    std::string router_id;
    std::string model;
  };

  // All outlive the service and its server.
  AdminService(Identity identity,
               const CallGate& gate,
               CoreLoop& core,
               RequestFrontend& frontend,
               const Refusals& refusals,
               const RouterProbe& probe,
               const Clock& clock,
               double replay_sample);

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const admin::v1::GetStatusRequest* request,
                                      admin::v1::ClusterStatus* response) override;
  grpc::ServerUnaryReactor* DrainWorker(grpc::CallbackServerContext* context,
                                        const admin::v1::DrainWorkerRequest* request,
                                        admin::v1::DrainWorkerResponse* response) override;
  grpc::ServerUnaryReactor* GenerateOn(grpc::CallbackServerContext* context,
                                       const admin::v1::GenerateOnRequest* request,
                                       admin::v1::GenerateOnResponse* response) override;

  // Empties the prefix caches of all workers, and the router's index of them, for an operator.
  void ResetPrefixCache(const std::string& operator_id);

  // The answer of GetStatus as JSON, for the status page. Unavailable when the router is too busy.
  StatusOr<std::string> StatusJson() const;

 private:
  void Fill(const RouterCore& core, Time now, admin::v1::ClusterStatus& out) const;

  const Identity identity_;
  const CallGate gate_;
  CoreLoop& core_;
  RequestFrontend& frontend_;
  const Refusals& refusals_;
  const RouterProbe& probe_;
  const Time started_;
  const double replay_sample_;
};

}  // namespace baton::router
