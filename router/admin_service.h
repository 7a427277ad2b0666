#pragma once

#include <string>

#include "common/base/clock.h"
#include "common/rpc/call_gate.h"
#include "proto/admin.grpc.pb.h"
#include "router/caller_limits.h"
#include "router/core_loop.h"
#include "router/router_probe.h"

namespace baton::router {

// The Admin service for operators: status and drain (admin.proto). Logs who drains a worker.
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
               const CallerLimits& callers,
               const RouterProbe& probe,
               const Clock& clock);

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const admin::v1::GetStatusRequest* request,
                                      admin::v1::ClusterStatus* response) override;
  grpc::ServerUnaryReactor* DrainWorker(grpc::CallbackServerContext* context,
                                        const admin::v1::DrainWorkerRequest* request,
                                        admin::v1::DrainWorkerResponse* response) override;

  // The answer of GetStatus as JSON, for the status page. Unavailable when the router is too busy.
  StatusOr<std::string> StatusJson() const;

 private:
  void Fill(const RouterCore& core, Time now, admin::v1::ClusterStatus& out) const;

  const Identity identity_;
  const CallGate gate_;
  CoreLoop& core_;
  const CallerLimits& callers_;
  const RouterProbe& probe_;
  const Clock& clock_;
  const Time started_;
};

}  // namespace baton::router
