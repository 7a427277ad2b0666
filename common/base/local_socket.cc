#include "common/base/local_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "common/base/mapped_file.h"

namespace baton {
namespace {

constexpr int kBacklog = 128;

struct LocalAddress {
  sockaddr_un storage{};
  socklen_t length = 0;
};

StatusOr<LocalAddress> AddressOf(std::string_view name) {
  LocalAddress address;
  if (name.empty() || name.size() > sizeof(address.storage.sun_path) - 1) {
    return InvalidArgument("socket name of {} bytes; 1 to {} are allowed",
                           name.size(),
                           sizeof(address.storage.sun_path) - 1);
  }
  address.storage.sun_family = AF_UNIX;
  std::memcpy(address.storage.sun_path + 1, name.data(), name.size());
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

Status SocketError(std::string_view what, std::string_view name) {
  return MakeStatus(
      StatusCode::kUnavailable, "{} local socket '{}': {}", what, name, std::strerror(errno));
}

}  // namespace

StatusOr<std::string> HostBootId() {
  BATON_ASSIGN_OR_RETURN(std::string id, ReadFile("/proc/sys/kernel/random/boot_id", 128));
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return id;
}

StatusOr<UniqueFd> ListenLocal(std::string_view name, int type) {
  BATON_ASSIGN_OR_RETURN(const LocalAddress address, AddressOf(name));
  UniqueFd socket(::socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid() ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) !=
          0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    return SocketError("listen on", name);
  }
  return socket;
}

StatusOr<UniqueFd> ConnectLocal(std::string_view name, int type) {
  BATON_ASSIGN_OR_RETURN(const LocalAddress address, AddressOf(name));
  UniqueFd socket(::socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid() ||
      ::connect(
          socket.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) != 0) {
    return SocketError("connect to", name);
  }
  BATON_RETURN_IF_ERROR(LocalPeer(socket).status());
  return socket;
}

StatusOr<pid_t> LocalPeer(const UniqueFd& socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return MakeStatus(StatusCode::kUnavailable,
                      "the process of the peer cannot be determined: {}",
                      std::strerror(errno));
  }
  if (peer.uid != ::geteuid()) {
    return MakeStatus(
        StatusCode::kPermissionDenied, "the peer runs as another user ({})", peer.uid);
  }
  return peer.pid;
}

}  // namespace baton
