#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <grpcpp/channel.h>
#include <grpcpp/server_builder.h>

#include "common/base/clock.h"

namespace baton {

// Limits that both ends of every internal connection keep. A peer that answers no ping for
// `ping_timeout` is taken for dead: its streams end with Unavailable, so that silence (a stopped
// process, a cut cable) is noticed as surely as a closed socket.
struct ConnectionLimits {
  size_t max_message_bytes = size_t{16} << 20;
  Duration ping_every = std::chrono::seconds(1);
  Duration ping_timeout = std::chrono::seconds(3);
  Duration connect_timeout = std::chrono::seconds(5);
  // Calls at a time that a server takes on one connection; further ones wait in the client.
  // Baton's processes have one stream between each pair.
  int max_streams = 128;
};

// A plain-text channel to "host:port". Connects lazily, on the first call. Channels are not shared
// between calls to this function, so that one peer's trouble stays its own.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const ConnectionLimits& limits = {});

// Puts the same limits on a server.
void ApplyLimits(const ConnectionLimits& limits, grpc::ServerBuilder& builder);

}  // namespace baton
