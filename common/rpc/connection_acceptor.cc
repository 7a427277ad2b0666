#include "common/rpc/connection_acceptor.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "common/base/check.h"
#include "common/base/free_with.h"
#include "common/base/thread.h"
#include "common/log/log.h"

namespace baton {
namespace {

constexpr int kBacklog = 4096;
constexpr int kEvents = 64;
constexpr int kWaitMs = 1000;
constexpr int kNoDescriptorMs = 100;
constexpr Duration kLogEvery = std::chrono::minutes(1);
constexpr std::string_view kMapped = "::ffff:";  // an IPv4 address as IPv6 writes it

const Logger kLog("rpc");

using Addresses = std::unique_ptr<addrinfo, FreeWith<freeaddrinfo>>;

Addresses Resolve(const std::string& host, uint16_t port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  return Addresses(error == 0 ? found : nullptr);
}

// A listening socket, invalid with errno when the address cannot be bound.
UniqueFd ListenAt(const addrinfo& address, bool both_families) {
  UniqueFd socket(::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return socket;
  const int on = 1;
  const int only_v6 = both_families ? 0 : 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.ai_family == AF_INET6) {
    ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only_v6, sizeof(only_v6));
  }
  if (::bind(socket.get(), address.ai_addr, address.ai_addrlen) == 0 &&
      ::listen(socket.get(), kBacklog) == 0) {
    return socket;
  }
  return {};
}

uint16_t PortOf(int socket) {
  sockaddr_in6 address = {};  // has the port where sockaddr_in has it
  socklen_t size = sizeof(address);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin6_port);
}

std::string ClientOf(const sockaddr_storage& address, socklen_t size) {
  char host[NI_MAXHOST] = {};
  const auto* const any = reinterpret_cast<const sockaddr*>(&address);
  if (::getnameinfo(any, size, host, sizeof(host), nullptr, 0, NI_NUMERICHOST) != 0) return "?";
  const std::string_view text = host;
  return std::string(text.starts_with(kMapped) ? text.substr(kMapped.size()) : text);
}

bool Watch(int epoll, int fd, uint32_t events) {
  epoll_event event{.events = events, .data = {.fd = fd}};
  return ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

}  // namespace

StatusOr<std::unique_ptr<ConnectionAcceptor>> ConnectionAcceptor::Listen(const HostPort& address,
                                                                         const Limits& limits) {
  std::vector<UniqueFd> listeners;
  uint16_t port = address.port;
  // A wildcard of IPv4 is one of both families, where the machine has IPv6.
  std::vector<std::string> hosts = {address.host};
  if (address.host == "0.0.0.0") hosts.insert(hosts.begin(), "::");
  for (const std::string& host : hosts) {
    const Addresses found = Resolve(host, port);
    for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
      auto* const any = reinterpret_cast<sockaddr_in6*>(at->ai_addr);
      any->sin6_port = htons(port);
      UniqueFd socket = ListenAt(*at, /*both_families=*/host == "::");
      if (!socket.valid()) continue;
      port = PortOf(socket.get());
      listeners.push_back(std::move(socket));
    }
    if (!listeners.empty()) break;
  }
  if (listeners.empty()) {
    return MakeStatus(StatusCode::kUnavailable,
                      "cannot listen on '{}': the port is in use, or the host is not an address "
                      "of this machine",
                      address.ToString());
  }
  return std::unique_ptr<ConnectionAcceptor>(
      new ConnectionAcceptor(std::move(listeners), port, limits));
}

ConnectionAcceptor::ConnectionAcceptor(std::vector<UniqueFd> listeners,
                                       uint16_t port,
                                       const Limits& limits)
    : listeners_(std::move(listeners)),
      port_(port),
      limits_(limits),
      stop_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  bool watched = stop_.valid() && epoll_.valid() && Watch(epoll_.get(), stop_.get(), EPOLLIN);
  for (const UniqueFd& listener : listeners_) {
    watched = watched && Watch(epoll_.get(), listener.get(), EPOLLIN);
  }
  BATON_CHECK(watched, "the port {} cannot be watched: {}", port_, std::strerror(errno));
}

ConnectionAcceptor::~ConnectionAcceptor() {
  Stop();
}

void ConnectionAcceptor::Start(Take take) {
  take_ = std::move(take);
  thread_ = StartThread("accept", [this](const std::stop_token&) { Run(); });
}

void ConnectionAcceptor::Stop() {
  if (thread_.joinable()) {
    ::eventfd_write(stop_.get(), 1);
    thread_.join();
  }
  listeners_.clear();
  open_.clear();
}

void ConnectionAcceptor::Run() {
  while (true) {
    epoll_event events[kEvents];
    const int count = ::epoll_wait(epoll_.get(), events, kEvents, kWaitMs);
    bool full = false;
    for (int i = 0; i < count; ++i) {
      const int fd = events[i].data.fd;
      if (fd == stop_.get()) return;
      if (open_.contains(fd)) {
        Forget(fd);
      } else {
        full = !AcceptFrom(fd) || full;
      }
    }
    // The connections that wait will be reported again.
    if (full) std::this_thread::sleep_for(std::chrono::milliseconds(kNoDescriptorMs));
  }
}

bool ConnectionAcceptor::AcceptFrom(int listener) {
  while (true) {
    sockaddr_storage address = {};
    socklen_t size = sizeof(address);
    UniqueFd connection(::accept4(
        listener, reinterpret_cast<sockaddr*>(&address), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (connection.valid()) {
      Admit(listener, std::move(connection), ClientOf(address, size));
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return true;
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      const Time now = SteadyClock().Now();
      if (now >= next_log_) {
        next_log_ = now + kLogEvery;
        kLog.Error("port {}: no new connection can be accepted: {}", port_, std::strerror(errno));
      }
      return false;
    }
    // The connection has ended before it was accepted. epoll reports those that still wait.
    return true;
  }
}

void ConnectionAcceptor::Admit(int listener, UniqueFd connection, std::string client) {
  const int all = static_cast<int>(open_.size());
  if (all >= limits_.connections) return Refuse(client, all, "max_connections");
  int& own = of_client_[client];
  if (own >= limits_.connections_per_address) {
    return Refuse(client, own, "max_connections_per_address");
  }
  const int on = 1;
  ::setsockopt(connection.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  UniqueFd watch(::fcntl(connection.get(), F_DUPFD_CLOEXEC, 0));
  // gRPC shuts a connection down, in both directions, before it closes it.
  if (!watch.valid() || !Watch(epoll_.get(), watch.get(), EPOLLRDHUP)) {
    if (own == 0) of_client_.erase(client);
    return;
  }
  ++own;
  const int fd = watch.get();
  open_[fd] = {std::move(watch), std::move(client)};
  take_(listener, std::move(connection));
}

void ConnectionAcceptor::Refuse(const std::string& client, int open, const char* limit) {
  ++refused_;
  const Time now = SteadyClock().Now();
  if (now < next_log_) return;
  next_log_ = now + kLogEvery;
  kLog.Warning(
      "port {}: closed {} new connections, the last one of {}, because {} are open, which is the "
      "limit process.grpc_limits.{}",
      port_,
      std::exchange(refused_, 0),
      client,
      open,
      limit);
}

void ConnectionAcceptor::Forget(int watch) {
  const auto found = open_.find(watch);
  const auto own = of_client_.find(found->second.client);
  if (--own->second == 0) of_client_.erase(own);
  // gRPC may have its own descriptor of the connection open, which would keep the watch.
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, watch, nullptr);
  open_.erase(found);
}

}  // namespace baton
