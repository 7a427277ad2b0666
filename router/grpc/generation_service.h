#pragma once

#include <string>

#include "common/rpc/call_gate.h"
#include "proto/generation.grpc.pb.h"
#include "router/frontend/request_frontend.h"
#include "router/loop/core_loop.h"

namespace baton::router {

// Methods with text take raw bytes, so that a request that is not UTF-8 gets a clear error.
using RawGeneration = v1::Generation::WithRawCallbackMethod_Generate<
    v1::Generation::WithRawCallbackMethod_Tokenize<v1::Generation::WithRawCallbackMethod_Detokenize<
        v1::Generation::WithCallbackMethod_ListModels<v1::Generation::Service>>>>;

// The public gRPC API (generation.proto). Thread-safe.
class GenerationService final : public RawGeneration {
 public:
  // All outlive the service and its server.
  GenerationService(const CallGate& gate, RequestFrontend& frontend, CoreLoop& core)
      : gate_(gate), frontend_(frontend), core_(core) {}

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Generate(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest* request,
                                       v1::ListModelsResponse* response) override;

 private:
  const CallGate gate_;
  RequestFrontend& frontend_;
  CoreLoop& core_;
};

}  // namespace baton::router
