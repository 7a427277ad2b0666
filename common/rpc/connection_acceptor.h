#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/host_port.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"
#include "common/http/flood_budget.h"
#include "common/http/tls/tls_context.h"
#include "common/rpc/connection_relay.h"
#include "common/rpc/stranger_load.h"

namespace baton {

// Accepts the connections of a gRPC port and passes their bytes to gRPC (ConnectionRelay). gRPC's
// own listener has no limit of connections, and after a failed accept, for example without a free
// descriptor, it never accepts again. One thread accepts, ends TLS, and passes the bytes of all
// connections of the port.
class ConnectionAcceptor final {
 public:
  struct Options {
    int connections = 0;              // at a time, in all
    int connections_per_address = 0;  // of one client address
    // A client that has not begun to speak HTTP/2 after this time is disconnected.
    Duration handshake_timeout{};
    size_t stranger_bytes = 0;  // what clients that have proven nothing may hold (StrangerLoad)
    std::unique_ptr<TlsContext> tls = {};  // null: plain
  };
  // Takes gRPC's end of a connection within the process. Called on the acceptor's thread.
  using Take = std::function<void(UniqueFd connection)>;

  // Listens at `address`, at all addresses that its host has, and at 0.0.0.0 for IPv6, too.
  // Connections wait until Start. Errors: Unavailable when no address can be bound.
  static StatusOr<std::unique_ptr<ConnectionAcceptor>> Listen(const HostPort& address,
                                                              Options options);
  // As Stop.
  ~ConnectionAcceptor();

  // The port, which the system has chosen for port 0.
  uint16_t port() const { return port_; }

  // To be called once. A connection over a limit is closed at once; the log says so, at most once a
  // minute.
  void Start(Take take);
  // Stops listening. Connections that exist go on. Afterwards `take` may be called only for
  // connections that were accepted before. May be called again.
  void StopListening();
  // Ends all connections. What gRPC has sent is passed on for up to a second. Afterwards `take` is
  // not called. May be called again.
  void Stop();

 private:
  using Id = uint64_t;
  struct Connection {
    std::unique_ptr<ConnectionRelay> relay;
    std::string host;
    std::optional<uint32_t> client_watch = {};  // the events that epoll watches
    std::optional<uint32_t> grpc_watch = {};
    Time deadline = kNever;  // its place in deadlines_
  };

  ConnectionAcceptor(std::vector<UniqueFd> listeners, uint16_t port, Options options);
  void Run();
  void HandleEvents(int timeout_ms);
  void FinishAll();
  void WatchListeners(bool watch);
  void AcceptFrom(int listener);
  void Admit(UniqueFd socket, std::string peer);
  void Advance(Id id, ConnectionRelay::Side side, uint32_t events);
  // Adapts what epoll watches, and destroys a connection that is over.
  void Settle(Id id, Connection& connection);
  void Watch(ConnectionRelay::Side side,
             Id id,
             std::optional<uint32_t>& watched,
             Connection& connection);
  void Remove(Id id);
  void EndLate();
  int TimeoutMs() const;
  void LogEnd(const ConnectionRelay& relay);
  void LogNoDescriptor();
  void Refuse(const std::string& client, int open, const char* limit);

  std::vector<UniqueFd> listeners_;
  const uint16_t port_;
  const Options options_;
  UniqueFd wake_;
  UniqueFd epoll_;
  std::atomic<bool> stops_listening_{false};
  std::atomic<bool> stops_{false};
  std::promise<void> not_listening_;
  // Used by the thread.
  Time now_{};  // when epoll last returned
  std::vector<char> buffer_;
  StrangerLoad strangers_;
  ConnectionRelay::Port shared_;
  LocalPair spare_;             // for the next connection
  Time listen_again_ = kNever;  // after the process had no descriptor
  Id last_id_ = 0;
  std::unordered_map<Id, Connection> open_;
  std::set<std::pair<Time, Id>> deadlines_;
  std::map<std::string, int> of_host_;  // open connections by client host
  std::vector<Id> more_;                // connections that can go on without an event
  Time next_limit_log_{};
  Time next_flood_log_{};
  Time next_descriptor_log_{};
  int refused_ = 0;  // since the last line of the log
  int floods_ = 0;   // since the last line of the log
  FloodBudget tls_lines_;
  std::jthread thread_;
};

}  // namespace baton
