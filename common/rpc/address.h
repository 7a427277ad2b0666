#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/host_port.h"
#include "common/base/status.h"

namespace baton {

// The current addresses of `target` ("ip:port" or "host:port", sorted, without duplicates). A plain
// "host:port" is returned as it is; "dns:///name:port" is replaced by all addresses that the name
// has now. Blocks as long as the system's resolver does. Errors: InvalidArgument for a malformed
// target, Unavailable when the name has no address.
StatusOr<std::vector<std::string>> ResolveTarget(std::string_view target);

}  // namespace baton
