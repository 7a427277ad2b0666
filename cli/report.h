#pragma once

#include "common/base/status.h"

namespace baton {

// Prints "baton: message" on stderr for an error. Returns the exit status: 0 when OK, else 1.
int Report(const Status& status);

}  // namespace baton
