#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <grpcpp/server.h>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/rpc/channel.h"
#include "common/rpc/connection_acceptor.h"

namespace baton {

// A running gRPC server on one port. Its services must outlive it. Thread-safe.
class RpcServer final {
 public:
  // Listens on `address` ("host:port"; port 0 lets the system choose) and serves. Errors:
  // InvalidArgument for a malformed address, Unavailable when the address cannot be bound, Internal
  // when gRPC does not start.
  static StatusOr<std::unique_ptr<RpcServer>> Start(const std::string& address,
                                                    std::span<grpc::Service* const> services,
                                                    const ConnectionLimits& limits = {});
  // Cancels running calls and shuts down.
  ~RpcServer();

  // "host:port" with the actual port.
  const std::string& address() const { return address_; }
  int port() const { return acceptor_->port(); }

  // Sets the answer of grpc.health.v1 for `service` and for the whole server (""). Until the first
  // call, the whole server is SERVING and `service` is unknown.
  void SetServing(const std::string& service, bool serving);

  // Accepts no new calls, waits up to `grace` for running calls to end, then cancels them. Returns
  // when every call has ended. A second Shutdown does nothing.
  void Shutdown(Duration grace);

 private:
  RpcServer(std::unique_ptr<grpc::Server> server,
            std::unique_ptr<ConnectionAcceptor> acceptor,
            std::string address)
      : server_(std::move(server)), acceptor_(std::move(acceptor)), address_(std::move(address)) {}

  const std::unique_ptr<grpc::Server> server_;
  const std::unique_ptr<ConnectionAcceptor> acceptor_;
  const std::string address_;
};

}  // namespace baton
