#pragma once

#include <cstdint>

#include "common/base/ids.h"

namespace baton {

// One joining of one router: a new number for every stream, so that what belonged to a lost stream
// is never sent on its successor.
using RouterKey = StrongId<struct RouterKeyTag, uint64_t>;

}  // namespace baton
