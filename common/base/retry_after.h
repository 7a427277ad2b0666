#pragma once

#include <optional>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace baton {

// Returns `status` with the time after which a new try may succeed. OK stays OK.
Status WithRetryAfter(Status status, Duration wait);
// That time; nothing when `status` has none.
std::optional<Duration> RetryAfterOf(const Status& status);

}  // namespace baton
