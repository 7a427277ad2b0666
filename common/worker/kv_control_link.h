#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/rpc/duplex_stream.h"
#include "kernels/sampling.h"
#include "kvtransfer/codec.h"
#include "kvtransfer/control_stream.h"
#include "proto/kv.pb.h"

// What both ends of a KvControl stream share.
namespace baton {

inline kv::v1::Frame ToFrame(const Envelope& envelope) {
  kv::v1::Frame frame;
  *frame.mutable_envelope() = EncodeEnvelope(envelope);
  return frame;
}

// Takes control messages from the hand-off machines to one gRPC stream, whose end it does not
// outlive. `Stream` is a ClientStream or ServerStream of frames. Thread-safe.
template <class Stream>
class FrameStream final : public ControlStream {
 public:
  explicit FrameStream(std::shared_ptr<Stream> stream) : stream_(std::move(stream)) {}

  Status Send(const Envelope& envelope) override {
    if (stream_->Send(ToFrame(envelope))) return OkStatus();
    return Status(StatusCode::kUnavailable, "the control stream is over or does not move");
  }

 private:
  const std::shared_ptr<Stream> stream_;
};

// The payload of SEAL: first tokens, one a sample, with their logprobs.
std::string EncodeFirstTokens(const std::vector<SampledToken>& tokens);
// The reverse. InvalidArgument for malformed bytes or another number of tokens than `samples`.
StatusOr<std::vector<SampledToken>> DecodeFirstTokens(const std::string& payload, int32_t samples);

}  // namespace baton
