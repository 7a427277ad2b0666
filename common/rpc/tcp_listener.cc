#include "common/rpc/tcp_listener.h"

#include <netdb.h>
#include <netinet/in.h>

#include <memory>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "common/base/free_with.h"

namespace baton {
namespace {

constexpr int kBacklog = 4096;
constexpr std::string_view kMapped = "::ffff:";  // an IPv4 address as IPv6 writes it

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

}  // namespace

StatusOr<TcpListeners> ListenTcp(const HostPort& address) {
  TcpListeners listeners;
  listeners.port = address.port;
  // A wildcard of IPv4 is one of both families, where the machine has IPv6.
  std::vector<std::string> hosts = {address.host};
  if (address.host == "0.0.0.0") hosts.insert(hosts.begin(), "::");
  for (const std::string& host : hosts) {
    const Addresses found = Resolve(host, listeners.port);
    for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
      auto* const any = reinterpret_cast<sockaddr_in6*>(at->ai_addr);
      any->sin6_port = htons(listeners.port);
      UniqueFd socket = ListenAt(*at, /*both_families=*/host == "::");
      if (!socket.valid()) continue;
      listeners.port = PortOf(socket.get());
      listeners.sockets.push_back(std::move(socket));
    }
    if (!listeners.sockets.empty()) break;
  }
  if (listeners.sockets.empty()) {
    return MakeStatus(StatusCode::kUnavailable,
                      "cannot listen on '{}': the port is in use, or the host is not an address "
                      "of this machine",
                      address.ToString());
  }
  return listeners;
}

std::string PeerNameOf(const sockaddr_storage& address, socklen_t size) {
  char host[NI_MAXHOST] = {};
  char port[NI_MAXSERV] = {};
  const auto* const any = reinterpret_cast<const sockaddr*>(&address);
  if (::getnameinfo(
          any, size, host, sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) !=
      0) {
    return "?";
  }
  std::string_view text = host;
  const bool mapped = text.starts_with(kMapped);
  if (mapped) text.remove_prefix(kMapped.size());
  if (address.ss_family == AF_INET6 && !mapped) return fmt::format("ipv6:[{}]:{}", text, port);
  return fmt::format("ipv4:{}:{}", text, port);
}

}  // namespace baton
