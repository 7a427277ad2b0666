#pragma once

#include <atomic>
#include <memory>
#include <string>

namespace grpc {
class ServerContextBase;
}

namespace baton {

// The far end of a connection that a gRPC port has accepted. gRPC itself sees only a socket of this
// process, whose name leads here. Thread-safe.
class RemoteClient final {
 public:
  // `address`: as gRPC writes it, such as "ipv4:10.0.0.1:443". `certificate`: the common name in
  // the certificate that TLS has verified; empty: none.
  RemoteClient(std::string address, std::string certificate);

  const std::string& address() const { return address_; }
  const std::string& certificate() const { return certificate_; }

  // The client has proven who it is, or a call of it was accepted on a port that asks for no proof.
  void SetProven() { proven_.store(true, std::memory_order_relaxed); }
  bool proven() const { return proven_.load(std::memory_order_relaxed); }

 private:
  const std::string address_;
  const std::string certificate_;
  std::atomic<bool> proven_{false};
};

// Makes `client` the one that calls with the socket name `name` come from, until Forget. The name
// is an abstract one of unix(7), without its leading zero byte.
void RememberClient(const std::string& name, std::shared_ptr<RemoteClient> client);
// The connection has ended. Calls that arrived before may still ask for the client for a while.
void ForgetClient(const std::string& name);

// The client that makes a call. Never null: of a call that comes from elsewhere, such as a channel
// within the process, a client that has the call's own address.
std::shared_ptr<RemoteClient> ClientOf(const grpc::ServerContextBase& context);

}  // namespace baton
