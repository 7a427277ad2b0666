#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/host_port.h"
#include "common/base/status.h"

namespace baton {

// The addresses ("ip:port" or "host:port", sorted, without doubles) that `target` names now. A
// plain "host:port" is itself; "dns:///name:port" is every address the name has at this moment.
// Blocks for as long as the system's resolver does. Errors: InvalidArgument for a malformed target,
// Unavailable when the name has no address.
StatusOr<std::vector<std::string>> ResolveTarget(std::string_view target);

}  // namespace baton
