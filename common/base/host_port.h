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

}  // namespace baton
