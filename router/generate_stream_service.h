#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "proto/generation.pb.h"
#include "router/generation.h"
#include "router/request_frontend.h"

namespace baton::router {

// One Generate call: the observer of a generation that writes it to its client. While a write is
// under way, what comes is gathered into the next ones; a client that leaves more than a bounded
// number of bytes unread is cut off with ResourceExhausted. Lives until gRPC is done with it.
class GenerateStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                             public GenerationObserver,
                             public std::enable_shared_from_this<GenerateStream> {
 public:
  // Begins the generation that `request`, a GenerateRequest, asks for. gRPC gets the raw pointer.
  static GenerateStream* Begin(grpc::CallbackServerContext* context,
                               const grpc::ByteBuffer& request,
                               RequestFrontend& frontend);

  void OnDelta(GenerationDelta delta) override;
  void OnEnd(GenerationEnd end) override;

 private:
  explicit GenerateStream(bool echo_tokens) : echo_tokens_(echo_tokens) {}

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void Enqueue(v1::GenerateResponse response);
  // Starts the next write, or finishes; call without the lock.
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
  size_t queued_bytes_ = 0;  // of all in queue_
  grpc::ByteBuffer writing_;
  bool busy_ = false;      // a write is under way
  bool began_ = false;     // something was queued: an error is then a message, not a status
  bool finished_ = false;  // Finish was called
  bool broken_ = false;    // the client is gone
  std::optional<Status> too_slow_;
  std::optional<Status> end_;  // the call's status, once the generation has ended
};

// What generation.proto's message asks for. InvalidArgument where it cannot be represented.
GenerationRequest RequestFromProto(const v1::GenerateRequest& in);
ChatInput ChatFromProto(const v1::Chat& in);
// The address of a call's client, without its port.
std::string ClientOf(const grpc::CallbackServerContext& context);

}  // namespace baton::router
