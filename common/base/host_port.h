#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace baton {

// "host:port", where an IPv6 host stands in brackets.
struct HostPort {
  std::string host;
  uint16_t port = 0;

  std::string ToString() const;
};

// Reads the address of every setting and flag. Errors: InvalidArgument naming what is missing or
// out of range. Port 0 is allowed.
StatusOr<HostPort> ParseHostPort(std::string_view text);

}  // namespace baton
