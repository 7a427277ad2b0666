#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <grpcpp/channel.h>

namespace baton {

struct RawAnswer {
  grpc::Status status;
  std::string bytes;  // the first response message
};

// Sends `request`, a serialised message, to `method` ("/package.Service/Method") and reads the
// first message of the answer. For services without generated code in this tree, and for requests
// that generated code cannot produce. Works for unary and streaming methods.
RawAnswer RawCall(const std::shared_ptr<grpc::Channel>& channel,
                  const std::string& method,
                  const std::string& request,
                  std::chrono::milliseconds limit = std::chrono::seconds(60));

}  // namespace baton
