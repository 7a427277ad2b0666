#pragma once

#include "common/base/status.h"

namespace baton {

// Prints "baton: message" on stderr for an error; the exit status that fits: 0 or 1.
int Report(const Status& status);

}  // namespace baton
