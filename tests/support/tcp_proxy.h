#pragma once

#include <memory>
#include <string>

namespace baton {

// A TCP relay on a free loopback port, for tests of links that break. Put its address() where a
// client expects the server, and call Forward() with the server's own address. Thread-safe.
class TcpProxy final {
 public:
  TcpProxy();
  ~TcpProxy();

  // "127.0.0.1:port" to connect to.
  const std::string& address() const;

  // Relays new connections to `target` ("127.0.0.1:port"). Connections that come before the first
  // call are reset.
  void Forward(const std::string& target);

  // Resets every open connection on both sides, as a broken link or a restarted middlebox does.
  // New connections are relayed. Returns the number of connections reset.
  int Cut();

  // Passes no more bytes in either direction and leaves all connections open, as a lost route does.
  void Freeze();
  // Passes bytes again, those held back first.
  void Thaw();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton
