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

// Reads "IP:port"; names are not looked up, for that may block. InvalidArgument naming the text.
StatusOr<TcpAddress> ParseTcpAddress(std::string_view text);

// The address peers can reach this machine at, with `port`: the first that is up and not loopback
// of `family`, else loopback.
TcpAddress OwnAddress(int family, uint16_t port);

}  // namespace baton
