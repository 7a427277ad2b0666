#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/host_port.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"

namespace baton {

struct TcpListeners {
  std::vector<UniqueFd> sockets;  // at least one, not blocking
  uint16_t port = 0;              // which the system has chosen for port 0
};

// Listens at `address`, at all addresses that its host has, and at 0.0.0.0 for IPv6, too. Errors:
// Unavailable when no address can be bound.
StatusOr<TcpListeners> ListenTcp(const HostPort& address);

// The address of a client as gRPC writes it: "ipv4:10.0.0.1:443", "ipv6:[fe80::1]:443". An IPv4
// address that IPv6 has mapped is written as IPv4.
std::string PeerNameOf(const sockaddr_storage& address, socklen_t size);

}  // namespace baton
