#pragma once

#include <string>

#include "common/base/status.h"

namespace baton {

// A port of a router: what its line `ready` calls it, and the flag that names it.
struct RouterPort {
  const char* name;
  const char* flag;
};
constexpr RouterPort kClientPort{"grpc", "--server"};
constexpr RouterPort kAdminPort{"admin", "--admin"};

// Turns the error of a call that reached nobody at `address`, or another server than a router, into
// words that say which address, and what to start or to name. Other statuses stay as they are.
Status ExplainUnreachable(const Status& status,
                          const std::string& address,
                          const RouterPort& port = kClientPort);

}  // namespace baton
