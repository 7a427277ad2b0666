#include "common/security/loopback.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <memory>

namespace baton {
namespace {

constexpr uint32_t kLoopbackNetwork = 127;

bool IsLoopbackV4(const in_addr& address) {
  return ntohl(address.s_addr) >> 24 == kLoopbackNetwork;
}

bool IsLoopbackAddress(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    return IsLoopbackV4(reinterpret_cast<const sockaddr_in&>(address).sin_addr);
  }
  if (address.sa_family != AF_INET6) return false;
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  if (!IN6_IS_ADDR_V4MAPPED(&v6)) return IN6_IS_ADDR_LOOPBACK(&v6);
  in_addr v4{};
  std::memcpy(&v4, v6.s6_addr + sizeof(v6) - sizeof(v4), sizeof(v4));
  return IsLoopbackV4(v4);
}

}  // namespace

bool IsLoopback(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    if (!IsLoopbackAddress(*entry->ai_addr)) return false;
  }
  return found != nullptr;
}

}  // namespace baton
