#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <grpcpp/channel.h>
#include <grpcpp/server_builder.h>

#include "common/base/clock.h"
#include "common/base/peer_proof.h"
#include "common/rpc/rpc_tls.h"

namespace baton {

// Limits of both ends of every internal connection. A peer that does not answer a ping within
// `ping_timeout` is treated as dead: its streams end with Unavailable. A silent peer (a stopped
// process, a cut cable) is thus detected as reliably as a closed socket.
struct ConnectionLimits {
  size_t max_message_bytes = size_t{16} << 20;
  Duration ping_every = std::chrono::seconds(1);
  Duration ping_timeout = std::chrono::seconds(3);
  Duration connect_timeout = std::chrono::seconds(5);
  // A server closes a connection that has not finished its handshakes (TLS, HTTP/2) after this
  // time, and one that has no call for this time.
  Duration handshake_timeout = std::chrono::seconds(10);
  Duration idle_timeout = std::chrono::seconds(30);
  // The most concurrent calls that a server accepts on one connection; further calls wait in the
  // client. Each pair of Baton's processes uses one stream.
  int max_streams = 128;
  // The most connections that a server has at a time, in all and of one client address. Further
  // ones are closed at once.
  int max_connections = 4096;
  int max_connections_per_address = 2048;
  // Encryption; null: none.
  std::shared_ptr<const RpcTls> tls;
  // How the two ends of a stream prove who they are (DuplexStream). Null: they do not.
  std::shared_ptr<const PeerProofs> proofs;
};

// A channel to "host:port". It connects lazily, on the first call. Each call of this
// function makes a connection of its own, so that a slow or failed channel does not affect others.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const ConnectionLimits& limits = {});

// Applies `limits` to a server.
void ApplyLimits(const ConnectionLimits& limits, grpc::ServerBuilder& builder);

}  // namespace baton
