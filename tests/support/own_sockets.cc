#include "tests/support/own_sockets.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <charconv>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>

namespace baton {
namespace {

std::optional<uint16_t> PortOf(int fd, decltype(&::getsockname) get_name) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (get_name(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return std::nullopt;
  if (address.ss_family != AF_INET && address.ss_family != AF_INET6) return std::nullopt;
  // The port has the same offset in sockaddr_in and sockaddr_in6.
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

int OptionOf(int fd, int level, int name) {
  int value = -1;
  socklen_t length = sizeof(value);
  return ::getsockopt(fd, level, name, &value, &length) == 0 ? value : -1;
}

}  // namespace

std::vector<OwnSocket> OwnSockets() {
  std::vector<OwnSocket> sockets;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const std::string name = entry.path().filename();
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    if (OptionOf(fd, SOL_SOCKET, SO_PROTOCOL) != IPPROTO_TCP) continue;
    const auto local = PortOf(fd, ::getsockname);
    const auto peer = PortOf(fd, ::getpeername);
    if (local.has_value() && peer.has_value()) sockets.push_back({fd, *local, *peer});
  }
  return sockets;
}

int AwaitAccepted(int client, Duration limit) {
  const auto local = PortOf(client, ::getsockname);
  const auto peer = PortOf(client, ::getpeername);
  const Time deadline = SteadyClock().Now() + limit;
  while (local.has_value() && peer.has_value() && SteadyClock().Now() < deadline) {
    for (const OwnSocket& socket : OwnSockets()) {
      if (socket.local_port == *peer && socket.peer_port == *local) return socket.fd;
    }
    std::this_thread::yield();
  }
  return -1;
}

bool AwaitNoDelay(int fd, Duration limit) {
  const Time deadline = SteadyClock().Now() + limit;
  while (OptionOf(fd, IPPROTO_TCP, TCP_NODELAY) != 1) {
    if (SteadyClock().Now() >= deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

uint32_t ReceivedSegments(int fd) {
  tcp_info info{};
  socklen_t length = sizeof(info);
  const int result = ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length);
  return result == 0 ? info.tcpi_data_segs_in : 0;
}

}  // namespace baton
