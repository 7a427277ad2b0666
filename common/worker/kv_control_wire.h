#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/rpc/duplex_stream.h"
#include "kernels/sampling.h"
#include "kvtransfer/control_stream.h"
#include "kvtransfer/messages/codec.h"
#include "proto/kv.pb.h"

// The code that both ends of a KvControl stream share.
namespace baton {

inline kv::v1::Frame ToFrame(const Envelope& envelope) {
  kv::v1::Frame frame;
  *frame.mutable_envelope() = EncodeEnvelope(envelope);
  return frame;
}

// Sends the control messages of hand-off sessions on one gRPC stream. Send fails once the stream
// has ended. `Stream` is a ClientStream or ServerStream of frames. Thread-safe.
template <class Stream>
class FrameStream final : public ControlStream {
 public:
  explicit FrameStream(std::shared_ptr<Stream> stream) : stream_(std::move(stream)) {}

  Status Send(const Envelope& envelope) override {
    if (stream_->Send(ToFrame(envelope))) return OkStatus();
    return Status(StatusCode::kUnavailable,
                  "the control stream has ended, or its send queue is full");
  }

 private:
  const std::shared_ptr<Stream> stream_;
};

// The payload of SEAL: one first token per sample, with its logprobs.
std::string EncodeFirstTokens(const std::vector<SampledToken>& tokens);
// The reverse. InvalidArgument for malformed bytes.
StatusOr<std::vector<SampledToken>> DecodeFirstTokens(const std::string& payload);

}  // namespace baton
