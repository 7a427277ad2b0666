#include "kvtransfer/tcp/tcp_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "common/base/mapped_file.h"

namespace baton {
namespace {

constexpr int kSocketBufferBytes = 4 << 20;
constexpr int kBacklog = 512;

Status SocketError(std::string_view what, const TcpAddress& address) {
  return MakeStatus(
      StatusCode::kUnavailable, "{} {}: {}", what, address.ToString(), std::strerror(errno));
}

void SetOption(int fd, int level, int name, int value) {
  // These options only improve speed or find dead peers sooner, so errors are ignored.
  (void)::setsockopt(fd, level, name, &value, sizeof(value));
}

// Requests a large socket buffer if the machine's limit allows it. With a smaller limit the request
// would give less than the kernel's auto-tuning reaches, so the buffer is left alone.
void EnlargeBuffer(int fd, int name, const char* limit_file) {
  const auto limit = ReadFile(limit_file, 64);
  if (limit.ok() && std::atoll(limit->c_str()) >= kSocketBufferBytes) {
    SetOption(fd, SOL_SOCKET, name, kSocketBufferBytes);
  }
}

void Tune(int fd) {
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, 5);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, 2);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 15000);
}

UniqueFd MakeSocket(const TcpAddress& address) {
  return UniqueFd(
      ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

}  // namespace

StatusOr<TcpListener> ListenTcp(std::string_view text, const TransportOptions& options) {
  BATON_ASSIGN_OR_RETURN(TcpAddress address, ParseTcpAddress(text));
  UniqueFd socket = MakeSocket(address);
  if (!socket.valid()) return SocketError("socket for", address);
  SetOption(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  // Set before listen: accepted sockets inherit it, and offer a large window from the start.
  EnlargeBuffer(socket.get(), SO_RCVBUF, "/proc/sys/net/core/rmem_max");
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) !=
      0) {
    return SocketError("bind", address);
  }
  if (::listen(socket.get(), kBacklog) != 0) return SocketError("listen on", address);
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address.storage), &address.length);
  if (!options.advertise_host.empty()) {
    const bool is_v6 = options.advertise_host.find(':') != std::string::npos;
    BATON_ASSIGN_OR_RETURN(address,
                           ParseTcpAddress(fmt::format("{}{}{}:{}",
                                                       is_v6 ? "[" : "",
                                                       options.advertise_host,
                                                       is_v6 ? "]" : "",
                                                       address.port())));
  } else if (address.is_wildcard()) {
    address = OwnAddress(address.storage.ss_family, address.port());
  }
  return TcpListener{std::move(socket), address};
}

StatusOr<UniqueFd> ConnectTcp(const TcpAddress& address) {
  UniqueFd socket = MakeSocket(address);
  if (!socket.valid()) return SocketError("socket for", address);
  Tune(socket.get());
  EnlargeBuffer(socket.get(), SO_SNDBUF, "/proc/sys/net/core/wmem_max");
  if (::connect(
          socket.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) != 0 &&
      errno != EINPROGRESS) {
    return SocketError("connect to", address);
  }
  return socket;
}

StatusOr<TcpAddress> TuneAccepted(const UniqueFd& socket) {
  Tune(socket.get());
  TcpAddress peer;
  peer.length = sizeof(peer.storage);
  if (::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&peer.storage), &peer.length) != 0) {
    return MakeStatus(StatusCode::kUnavailable,
                      "the peer closed the connection right after it was accepted");
  }
  return peer;
}

StatusOr<TcpAddress> ParseAdvertised(std::string_view text) {
  BATON_ASSIGN_OR_RETURN(const TcpAddress address, ParseTcpAddress(text));
  if (address.is_wildcard() || address.port() == 0) {
    return InvalidArgument("'{}' needs an address and a port that are not 0", text);
  }
  return address;
}

}  // namespace baton
