#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <grpcpp/server.h>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/rpc/channel.h"

namespace baton {

// A running gRPC server on one port. Its services outlive it. Thread-safe.
class RpcServer final {
 public:
  // Listens on `address` ("host:port"; port 0 lets the system choose) and serves. Errors:
  // InvalidArgument for a malformed address, Unavailable when the port cannot be had.
  static StatusOr<std::unique_ptr<RpcServer>> Start(const std::string& address,
                                                    std::span<grpc::Service* const> services,
                                                    const ConnectionLimits& limits = {});
  // Shuts down without grace.
  ~RpcServer();

  // "host:port" with the port in use.
  const std::string& address() const { return address_; }
  int port() const { return port_; }

  // What grpc.health.v1 answers for `service` and for the server as a whole (""), where the default
  // health service is on; until the first call the whole is serving and `service` unknown.
  void SetServing(const std::string& service, bool serving);

  // Takes no new calls, gives running ones `grace` to end, then cancels them. Returns when every
  // call has ended. Further calls do nothing.
  void Shutdown(Duration grace);

 private:
  RpcServer(std::unique_ptr<grpc::Server> server, std::string address, int port)
      : server_(std::move(server)), address_(std::move(address)), port_(port) {}

  const std::unique_ptr<grpc::Server> server_;
  const std::string address_;
  const int port_;
};

}  // namespace baton
