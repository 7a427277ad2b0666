#include "common/rpc/connection_acceptor.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/base/check.h"
#include "common/base/thread.h"
#include "common/log/log.h"
#include "common/rpc/tcp_listener.h"

namespace baton {
namespace {

constexpr int kEvents = 64;
constexpr int kWaitMs = 1000;
constexpr size_t kBufferBytes = size_t{64} << 10;
constexpr Duration kNoDescriptorPause = std::chrono::milliseconds(100);
constexpr Duration kFinishLimit = std::chrono::seconds(1);
constexpr Duration kLogEvery = std::chrono::minutes(1);
// Lines of the log on refused TLS handshakes.
constexpr double kTlsLineBurst = 20;
constexpr double kTlsLinesPerSecond = 0.2;

const Logger kLog("rpc");

using Side = ConnectionRelay::Side;

// What epoll reports: a listener or the wake-up by its descriptor, a connection by its id.
constexpr uint64_t kOwnDescriptor = uint64_t{1} << 63;
constexpr uint64_t kGrpcSide = uint64_t{1} << 62;

bool Control(int epoll, int operation, int fd, uint32_t events, uint64_t data) {
  epoll_event event{.events = events, .data = {.u64 = data}};
  return ::epoll_ctl(epoll, operation, fd, &event) == 0;
}

uint64_t Own(int fd) {
  return kOwnDescriptor | static_cast<uint64_t>(fd);
}

bool LacksResources(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

StatusOr<std::unique_ptr<ConnectionAcceptor>> ConnectionAcceptor::Listen(const HostPort& address,
                                                                         Options options) {
  BATON_ASSIGN_OR_RETURN(TcpListeners listeners, ListenTcp(address));
  return std::unique_ptr<ConnectionAcceptor>(
      new ConnectionAcceptor(std::move(listeners.sockets), listeners.port, std::move(options)));
}

ConnectionAcceptor::ConnectionAcceptor(std::vector<UniqueFd> listeners,
                                       uint16_t port,
                                       Options options)
    : listeners_(std::move(listeners)),
      port_(port),
      options_(std::move(options)),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      buffer_(kBufferBytes),
      strangers_(options_.stranger_bytes),
      shared_{strangers_, buffer_, {}},
      tls_lines_(kTlsLineBurst, kTlsLinesPerSecond) {
  const int epoll = epoll_.get();
  bool watched = wake_.valid() && epoll_.valid() &&
                 Control(epoll, EPOLL_CTL_ADD, wake_.get(), EPOLLIN, Own(wake_.get()));
  for (const UniqueFd& listener : listeners_) {
    const int fd = listener.get();
    watched = watched && Control(epoll, EPOLL_CTL_ADD, fd, EPOLLIN, Own(fd));
  }
  BATON_CHECK(watched, "the port {} cannot be watched: {}", port_, std::strerror(errno));
}

ConnectionAcceptor::~ConnectionAcceptor() {
  Stop();
}

void ConnectionAcceptor::Start(Take take) {
  shared_.take = std::move(take);
  thread_ = StartThread("grpc-port", [this](const std::stop_token&) { Run(); });
}

void ConnectionAcceptor::StopListening() {
  if (!thread_.joinable() || stops_listening_.exchange(true)) return;
  ::eventfd_write(wake_.get(), 1);
  not_listening_.get_future().wait();
}

void ConnectionAcceptor::Stop() {
  StopListening();
  stops_ = true;
  if (thread_.joinable()) {
    ::eventfd_write(wake_.get(), 1);
    thread_.join();
  }
  listeners_.clear();
}

void ConnectionAcceptor::Run() {
  while (!stops_) {
    HandleEvents(TimeoutMs());
    if (stops_listening_ && !listeners_.empty()) {
      listeners_.clear();
      not_listening_.set_value();
    }
  }
  FinishAll();
}

void ConnectionAcceptor::FinishAll() {
  const Time limit = SteadyClock().Now() + kFinishLimit;
  while (!open_.empty() && SteadyClock().Now() < limit) {
    std::vector<Id> all;
    for (const auto& [id, connection] : open_) all.push_back(id);
    for (const Id id : all) {
      Connection& connection = open_.at(id);
      connection.relay->Finish(SteadyClock().Now());
      Settle(id, connection);
    }
    if (!open_.empty()) HandleEvents(/*timeout_ms=*/10);
  }
  open_.clear();
}

void ConnectionAcceptor::HandleEvents(int timeout_ms) {
  epoll_event events[kEvents];
  const int count = ::epoll_wait(epoll_.get(), events, kEvents, timeout_ms);
  now_ = SteadyClock().Now();
  std::vector<Id> more = std::exchange(more_, {});
  for (int i = 0; i < count; ++i) {
    const uint64_t data = events[i].data.u64;
    if ((data & kOwnDescriptor) == 0) {
      const Side side = (data & kGrpcSide) == 0 ? Side::kClient : Side::kGrpc;
      Advance(data & ~kGrpcSide, side, events[i].events);
    } else if (static_cast<int>(data & ~kOwnDescriptor) == wake_.get()) {
      eventfd_t ignored = 0;
      ::eventfd_read(wake_.get(), &ignored);
    } else if (!stops_listening_) {
      AcceptFrom(static_cast<int>(data & ~kOwnDescriptor));
    }
  }
  for (const Id id : more) Advance(id, Side::kClient, 0);
  EndLate();
}

int ConnectionAcceptor::TimeoutMs() const {
  if (!more_.empty()) return 0;
  Time next = listen_again_;
  if (!deadlines_.empty()) next = std::min(next, deadlines_.begin()->first);
  const Duration left = next - now_;
  if (next == kNever || left >= std::chrono::milliseconds(kWaitMs)) return kWaitMs;
  return left <= Duration::zero() ? 0 : static_cast<int>(ToMillis(left)) + 1;
}

void ConnectionAcceptor::EndLate() {
  if (listen_again_ <= now_) WatchListeners(true);
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_) {
    const Id id = deadlines_.begin()->second;
    Connection& connection = open_.at(id);
    connection.relay->OnDeadline(now_);
    Settle(id, connection);
  }
}

// ---- new connections

void ConnectionAcceptor::WatchListeners(bool watch) {
  listen_again_ = watch ? kNever : SteadyClock().Now() + kNoDescriptorPause;
  for (const UniqueFd& listener : listeners_) {
    const int fd = listener.get();
    Control(epoll_.get(), EPOLL_CTL_MOD, fd, watch ? uint32_t{EPOLLIN} : 0, Own(fd));
  }
}

void ConnectionAcceptor::AcceptFrom(int listener) {
  while (true) {
    // First the descriptors that gRPC will need: a connection waits in the listener until then.
    if (!spare_.valid()) spare_ = LocalPair::Make();
    sockaddr_storage address = {};
    socklen_t size = sizeof(address);
    UniqueFd connection;
    if (spare_.valid()) {
      connection = UniqueFd(::accept4(
          listener, reinterpret_cast<sockaddr*>(&address), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
    }
    if (connection.valid()) {
      Admit(std::move(connection), PeerNameOf(address, size));
      continue;
    }
    if (LacksResources(errno)) {
      LogNoDescriptor();
      spare_ = {};
      WatchListeners(false);
    }
    // Else none waits, or one has ended before it was accepted. epoll reports those that still
    // wait.
    return;
  }
}

void ConnectionAcceptor::Admit(UniqueFd socket, std::string peer) {
  const std::string host = HostOfPeer(peer);
  const int all = static_cast<int>(open_.size());
  if (all >= options_.connections) return Refuse(host, all, "max_connections");
  int& own = of_host_[host];
  if (own >= options_.connections_per_address) {
    return Refuse(host, own, "max_connections_per_address");
  }
  ++own;
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  auto client = std::make_unique<ClientSocket>(
      std::move(socket), options_.tls == nullptr ? nullptr : options_.tls->NewConnection());
  const Id id = ++last_id_;
  Connection& connection = open_[id];
  connection.host = host;
  connection.relay =
      std::make_unique<ConnectionRelay>(std::move(client),
                                        std::exchange(spare_, {}),
                                        std::move(peer),
                                        shared_,
                                        SteadyClock().Now() + options_.handshake_timeout);
  Settle(id, connection);
}

void ConnectionAcceptor::Refuse(const std::string& client, int open, const char* limit) {
  ++refused_;
  const Time now = SteadyClock().Now();
  if (now < next_limit_log_) return;
  next_limit_log_ = now + kLogEvery;
  kLog.Warning(
      "port {}: closed {} new connections, the last one of {}, because {} are open, which is the "
      "limit process.grpc_limits.{}",
      port_,
      std::exchange(refused_, 0),
      client,
      open,
      limit);
}

void ConnectionAcceptor::LogNoDescriptor() {
  const int error = errno;
  const Time now = SteadyClock().Now();
  if (now < next_descriptor_log_) return;
  next_descriptor_log_ = now + kLogEvery;
  kLog.Error("port {}: no new connection can be accepted: {}", port_, std::strerror(error));
}

// ---- connections that exist

void ConnectionAcceptor::Advance(Id id, Side side, uint32_t events) {
  const auto found = open_.find(id);
  if (found == open_.end()) return;  // destroyed since epoll reported it
  found->second.relay->OnEvents(side, events, now_);
  Settle(id, found->second);
}

void ConnectionAcceptor::Settle(Id id, Connection& connection) {
  ConnectionRelay& relay = *connection.relay;
  if (relay.over()) return Remove(id);
  if (relay.has_more()) more_.push_back(id);
  Watch(Side::kClient, id, connection.client_watch, connection);
  Watch(Side::kGrpc, id, connection.grpc_watch, connection);
  if (relay.deadline() == connection.deadline) return;
  deadlines_.erase({connection.deadline, id});
  connection.deadline = relay.deadline();
  if (connection.deadline != kNever) deadlines_.emplace(connection.deadline, id);
}

void ConnectionAcceptor::Watch(Side side,
                               Id id,
                               std::optional<uint32_t>& watched,
                               Connection& connection) {
  const std::optional<uint32_t> wanted = connection.relay->interest(side);
  if (wanted == watched) return;
  const int fd = connection.relay->fd(side);
  const uint64_t data = id | (side == Side::kGrpc ? kGrpcSide : 0);
  if (!wanted.has_value()) {
    if (fd >= 0) Control(epoll_.get(), EPOLL_CTL_DEL, fd, 0, data);
  } else if (!Control(epoll_.get(),
                      watched.has_value() ? EPOLL_CTL_MOD : EPOLL_CTL_ADD,
                      fd,
                      *wanted,
                      data)) {
    // No memory to serve the connection.
    connection.relay->Drop();
    more_.push_back(id);
  }
  watched = wanted;
}

void ConnectionAcceptor::Remove(Id id) {
  const auto found = open_.find(id);
  Connection& connection = found->second;
  LogEnd(*connection.relay);
  if (connection.deadline != kNever) deadlines_.erase({connection.deadline, id});
  const auto own = of_host_.find(connection.host);
  if (--own->second == 0) of_host_.erase(own);
  open_.erase(found);
}

void ConnectionAcceptor::LogEnd(const ConnectionRelay& relay) {
  const Time now = SteadyClock().Now();
  if (!relay.tls_refusal().empty() && tls_lines_.Take(now)) {
    kLog.Warning("port {}: refused the TLS connection of {}: {}",
                 port_,
                 relay.address(),
                 relay.tls_refusal());
  }
  if (relay.flood().empty()) return;
  if (relay.flood() == FrameGate::kNotHttp2) {
    kLog.Debug("port {}: ended a connection of {}: {}", port_, relay.address(), relay.flood());
    return;
  }
  ++floods_;
  if (now < next_flood_log_) return;
  next_flood_log_ = now + kLogEvery;
  kLog.Warning("port {}: ended {} connections that flooded it, the last one of {}: {}",
               port_,
               std::exchange(floods_, 0),
               relay.address(),
               relay.flood());
}

}  // namespace baton
