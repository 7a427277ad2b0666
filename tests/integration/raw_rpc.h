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

// Sends `request`, a serialised message, to `method` ("/package.Service/Method") and reads one
// message of the answer: for services whose generated code is not here, and for requests that no
// generated code would make. Works for unary and streaming methods.
RawAnswer RawCall(const std::shared_ptr<grpc::Channel>& channel,
                  const std::string& method,
                  const std::string& request,
                  std::chrono::milliseconds limit = std::chrono::seconds(60));

}  // namespace baton
