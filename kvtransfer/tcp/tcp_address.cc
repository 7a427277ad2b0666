#include "kvtransfer/tcp/tcp_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <cstring>

#include <fmt/format.h>

#include "common/base/host_port.h"

namespace baton {
namespace {

TcpAddress FromV4(in_addr address, uint16_t port) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(port);
  in.sin_addr = address;
  TcpAddress result;
  std::memcpy(&result.storage, &in, sizeof(in));
  result.length = sizeof(in);
  return result;
}

TcpAddress FromV6(const in6_addr& address, uint16_t port) {
  sockaddr_in6 in{};
  in.sin6_family = AF_INET6;
  in.sin6_port = htons(port);
  in.sin6_addr = address;
  TcpAddress result;
  std::memcpy(&result.storage, &in, sizeof(in));
  result.length = sizeof(in);
  return result;
}

const sockaddr_in& AsV4(const TcpAddress& address) {
  return reinterpret_cast<const sockaddr_in&>(address.storage);
}

const sockaddr_in6& AsV6(const TcpAddress& address) {
  return reinterpret_cast<const sockaddr_in6&>(address.storage);
}

}  // namespace

std::string TcpAddress::ToString() const {
  char text[INET6_ADDRSTRLEN] = "?";
  if (storage.ss_family == AF_INET) {
    ::inet_ntop(AF_INET, &AsV4(*this).sin_addr, text, sizeof(text));
    return fmt::format("{}:{}", text, port());
  }
  ::inet_ntop(AF_INET6, &AsV6(*this).sin6_addr, text, sizeof(text));
  return fmt::format("[{}]:{}", text, port());
}

bool TcpAddress::is_wildcard() const {
  if (storage.ss_family == AF_INET) return AsV4(*this).sin_addr.s_addr == htonl(INADDR_ANY);
  return std::memcmp(&AsV6(*this).sin6_addr, &in6addr_any, sizeof(in6addr_any)) == 0;
}

uint16_t TcpAddress::port() const {
  // The port is at the same offset in both families.
  return ntohs(AsV4(*this).sin_port);
}

StatusOr<TcpAddress> ParseTcpAddress(std::string_view text) {
  BATON_ASSIGN_OR_RETURN(const HostPort parsed, ParseHostPort(text));
  in_addr v4{};
  if (::inet_pton(AF_INET, parsed.host.c_str(), &v4) == 1) return FromV4(v4, parsed.port);
  in6_addr v6{};
  if (::inet_pton(AF_INET6, parsed.host.c_str(), &v6) == 1) return FromV6(v6, parsed.port);
  return InvalidArgument("address '{}' is not of the form 10.0.0.7:9000 or [fd00::7]:9000", text);
}

TcpAddress OwnAddress(int family, uint16_t port) {
  ifaddrs* list = nullptr;
  TcpAddress found = family == AF_INET ? FromV4(in_addr{htonl(INADDR_LOOPBACK)}, port)
                                       : FromV6(in6addr_loopback, port);
  if (::getifaddrs(&list) != 0) return found;
  for (const ifaddrs* it = list; it != nullptr; it = it->ifa_next) {
    if (it->ifa_addr == nullptr || it->ifa_addr->sa_family != family) continue;
    if ((it->ifa_flags & IFF_UP) == 0 || (it->ifa_flags & IFF_LOOPBACK) != 0) continue;
    if (family == AF_INET) {
      found = FromV4(reinterpret_cast<const sockaddr_in*>(it->ifa_addr)->sin_addr, port);
      break;
    }
    const auto& address = reinterpret_cast<const sockaddr_in6*>(it->ifa_addr)->sin6_addr;
    if (IN6_IS_ADDR_LINKLOCAL(&address)) continue;
    found = FromV6(address, port);
    break;
  }
  ::freeifaddrs(list);
  return found;
}

}  // namespace baton
