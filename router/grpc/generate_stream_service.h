#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "common/rpc/call_gate.h"
#include "proto/generation.pb.h"
#include "router/frontend/request_frontend.h"
#include "router/generation.h"

namespace baton::router {

// One Generate call: observes a generation and writes its output to the client. Output that arrives
// during a write is merged into the next messages. A client with too many unread bytes is cut off
// with ResourceExhausted. Lives until gRPC calls OnDone.
class GenerateStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                             public GenerationObserver,
                             public std::enable_shared_from_this<GenerateStream> {
 public:
  // Starts the generation of `request`, a serialised GenerateRequest, if `gate` admits the call.
  // The raw pointer is for gRPC; the stream owns itself.
  static GenerateStream* Begin(grpc::CallbackServerContext* context,
                               const grpc::ByteBuffer& request,
                               const CallGate& gate,
                               RequestFrontend& frontend);

  void OnDelta(GenerationDelta delta) override;
  void OnEnd(GenerationEnd end) override;

 private:
  explicit GenerateStream(bool echo_tokens) : echo_tokens_(echo_tokens) {}

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // Advance must follow.
  void Enqueue(v1::GenerateResponse response);
  // Starts the next write, finishes the call, or both at once. The caller must not hold mutex_.
  void Advance();
  void CancelGeneration(const Status& why);

  const bool echo_tokens_;
  std::shared_ptr<GenerateStream> self_;
  std::shared_ptr<Generation> generation_;

  std::mutex mutex_;
  struct Queued {
    v1::GenerateResponse response;
    size_t bytes = 0;
  };
  std::deque<Queued> queue_;
  size_t queued_bytes_ = 0;  // size of all responses in queue_
  grpc::ByteBuffer writing_;
  bool busy_ = false;      // a write is in progress
  bool began_ = false;     // a response was queued: errors are then sent as a message, not a status
  bool finished_ = false;  // Finish was called
  bool broken_ = false;    // the client has disconnected
  std::optional<Status> too_slow_;
  std::optional<Status> end_;  // the call's status, once the generation has ended
};

// The request of a GenerateRequest message (generation.proto). Not checked: see CheckRequest.
GenerationRequest RequestFromProto(const v1::GenerateRequest& in);
ChatInput ChatFromProto(const v1::Chat& in);

}  // namespace baton::router
