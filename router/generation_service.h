#pragma once

#include <string>

#include "proto/generation.grpc.pb.h"
#include "router/core_loop.h"
#include "router/request_frontend.h"

namespace baton::router {

// The public gRPC API (generation.proto). Thread-safe.
class GenerationService final : public v1::Generation::CallbackService {
 public:
  // Both outlive the service and its server.
  GenerationService(RequestFrontend& frontend, CoreLoop& core) : frontend_(frontend), core_(core) {}

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext* context, const v1::GenerateRequest* request) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const v1::DetokenizeRequest* request,
                                       v1::DetokenizeResponse* response) override;
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest* request,
                                       v1::ListModelsResponse* response) override;

 private:
  RequestFrontend& frontend_;
  CoreLoop& core_;
};

}  // namespace baton::router
