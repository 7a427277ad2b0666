#pragma once

#include <memory>
#include <mutex>

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include "proto/admin.pb.h"
#include "router/frontend/request_frontend.h"
#include "router/generation.h"

namespace baton::router {

// One call of Admin.GenerateOn: generates on the workers that an operator names, and answers with
// the tokens. Ends with the error of the generation. Lives until gRPC calls OnDone.
class OperatorGeneration final : public grpc::ServerUnaryReactor,
                                 public GenerationObserver,
                                 public std::enable_shared_from_this<OperatorGeneration> {
 public:
  // Starts the generation. The raw pointer is for gRPC; the call owns itself. `response` lives
  // until the call has finished; `frontend` outlives the call.
  static OperatorGeneration* Begin(const grpc::CallbackServerContext& context,
                                   const admin::v1::GenerateOnRequest& request,
                                   admin::v1::GenerateOnResponse& response,
                                   RequestFrontend& frontend);

  void OnDelta(GenerationDelta delta) override;
  void OnEnd(GenerationEnd end) override;

 private:
  explicit OperatorGeneration(admin::v1::GenerateOnResponse& response) : response_(response) {}

  void OnCancel() override;
  void OnDone() override;

  admin::v1::GenerateOnResponse& response_;
  std::shared_ptr<OperatorGeneration> self_;
  std::mutex mutex_;
  std::shared_ptr<Generation> generation_;  // guarded by mutex_
  bool left_ = false;                       // the operator has disconnected; guarded by mutex_
};

}  // namespace baton::router
