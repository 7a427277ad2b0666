#pragma once

#include <string>

#include "common/base/status.h"

namespace baton {

// Turns the error of a call that reached nobody at `address`, or another server than a router, into
// words that say which address, and what to start or to name. Other statuses stay as they are.
Status ExplainUnreachable(const Status& status, const std::string& address);

}  // namespace baton
