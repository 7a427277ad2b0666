#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>

#include "common/base/status.h"

namespace baton {

// An IP address and port.
struct TcpAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  // "10.0.0.7:9000" or "[fd00::7]:9000".
  std::string ToString() const;
  bool is_wildcard() const;
  uint16_t port() const;
};

// Parses "IP:port". Host names are not resolved, because that may block. InvalidArgument that names
// the text.
StatusOr<TcpAddress> ParseTcpAddress(std::string_view text);

// An address at which peers can reach this machine, with `port`: the first address of `family` that
// is up and not loopback (nor IPv6 link-local), else loopback.
TcpAddress OwnAddress(int family, uint16_t port);

}  // namespace baton
