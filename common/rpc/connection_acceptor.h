#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/host_port.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"

namespace baton {

// Accepts the connections of a gRPC port. gRPC's own listener has no limit of connections, and
// after a failed accept, for example without a free descriptor, it never accepts again. One thread
// accepts, and notices when connections end: it keeps a second descriptor of each.
class ConnectionAcceptor final {
 public:
  struct Limits {
    int connections = 0;              // at a time, in all
    int connections_per_address = 0;  // of one client address
  };
  // Takes a connection that `listener` has accepted. Called on the acceptor's thread.
  using Take = std::function<void(int listener, UniqueFd connection)>;

  // Listens at `address`, at all addresses that its host has, and at 0.0.0.0 for IPv6, too.
  // Connections wait until Start. Errors: Unavailable when no address can be bound.
  static StatusOr<std::unique_ptr<ConnectionAcceptor>> Listen(const HostPort& address,
                                                              const Limits& limits);
  // As Stop.
  ~ConnectionAcceptor();

  // The port, which the system has chosen for port 0.
  uint16_t port() const { return port_; }

  // To be called once. A connection over a limit is closed at once; the log says so, at most once a
  // minute.
  void Start(Take take);
  // Stops listening. Afterwards `take` is not called. May be called again.
  void Stop();

 private:
  struct Connection {
    UniqueFd watch;
    std::string client;
  };

  ConnectionAcceptor(std::vector<UniqueFd> listeners, uint16_t port, const Limits& limits);
  void Run();
  // False when the process has no descriptor or memory for another connection.
  bool AcceptFrom(int listener);
  void Admit(int listener, UniqueFd connection, std::string client);
  void Refuse(const std::string& client, int open, const char* limit);
  void Forget(int watch);

  std::vector<UniqueFd> listeners_;
  const uint16_t port_;
  const Limits limits_;
  Take take_;
  UniqueFd stop_;
  UniqueFd epoll_;
  // Used by the thread.
  std::unordered_map<int, Connection> open_;  // by the descriptor `watch`
  std::map<std::string, int> of_client_;      // open connections by client address
  Time next_log_{};
  int refused_ = 0;  // since the last line of the log
  std::jthread thread_;
};

}  // namespace baton
