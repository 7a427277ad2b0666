#pragma once

#include <string>

#include "common/base/status.h"

namespace baton {

// Turns the Unavailable of a call that reached nobody at `address` into words that say which
// address, and what to start. Other statuses stay as they are.
Status ExplainUnreachable(const Status& status, const std::string& address);

}  // namespace baton
