#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace baton {

// A TCP relay on a free loopback port, for tests of links that break. Give address() to the client
// as the server's address, and call Forward() with the server's real address. Thread-safe.
class TcpProxy final {
 public:
  TcpProxy();
  ~TcpProxy();

  // "127.0.0.1:port" to connect to.
  const std::string& address() const;

  // Relays new connections to `target` ("127.0.0.1:port"). A connection that arrives before the
  // first call is reset.
  void Forward(const std::string& target);

  // Resets every open connection on both sides, as a broken link or a restarted middlebox does.
  // New connections are still relayed. Returns the number of connections reset.
  int Cut();

  // Stops passing bytes in both directions but leaves all connections open, as a lost route does.
  void Freeze();
  // Passes bytes again. The bytes held back go first.
  void Thaw();

  // From now on passes at most this many bytes per second from clients to the target, on all
  // connections together. 0: no bound, as before the first call.
  void Limit(size_t bytes_per_second);

  // Changes one bit of the next bytes that a client sends on a connection on which clients have
  // sent at least `after` bytes.
  void ChangeBit(size_t after);
  // How many bits were changed.
  int changed_bits() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton
