#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace baton {

// "host:port". In text an IPv6 host is in brackets: "[::1]:8080".
struct HostPort {
  std::string host;
  uint16_t port = 0;

  std::string ToString() const;
};

// Parses "host:port". Every setting and flag that is an address is parsed here. Port 0 is allowed.
// Errors: InvalidArgument that names the missing part or the port that is out of range.
StatusOr<HostPort> ParseHostPort(std::string_view text);

// The host of the far end of a connection, as sockets and gRPC name it: "10.0.0.1" for
// "10.0.0.1:443", "ipv4:10.0.0.1:443" and "10.0.0.1"; "[::1]" for "ipv6:[::1]:443", where gRPC also
// writes the brackets as %5B and %5D. A name of another form is returned as it is.
std::string HostOfPeer(std::string_view peer);

}  // namespace baton
