#pragma once

#include "cli/router_endpoint.h"
#include "common/base/status.h"

namespace baton {

// A port of a router: its name in the router's line `ready`, and the flag of `baton` for it.
struct RouterPort {
  const char* name;
  const char* flag;
};
constexpr RouterPort kClientPort{"grpc", "--server"};
constexpr RouterPort kAdminPort{"admin", "--admin"};

// Explains the error of a call that reached no server at `endpoint`, a server whose certificate is
// refused, or a server that is not a router: names the address, and the command to run or the flag
// to set. Returns other statuses unchanged. Connects once more when TLS fails.
Status ExplainUnreachable(const Status& status,
                          const RouterEndpoint& endpoint,
                          const RouterPort& port = kClientPort);

}  // namespace baton
