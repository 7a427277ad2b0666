#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace baton {

// "host:port", where an IPv6 host stands in brackets.
struct HostPort {
  std::string host;
  uint16_t port = 0;

  std::string ToString() const;
};

// Errors: InvalidArgument naming what is missing or out of range. Port 0 is allowed.
StatusOr<HostPort> ParseHostPort(std::string_view text);

// The addresses ("ip:port" or "host:port", sorted, without doubles) that `target` names now. A
// plain "host:port" is itself; "dns:///name:port" is every address the name has at this moment.
// Blocks for as long as the system's resolver does. Errors: InvalidArgument for a malformed target,
// Unavailable when the name has no address.
StatusOr<std::vector<std::string>> ResolveTarget(std::string_view target);

}  // namespace baton
