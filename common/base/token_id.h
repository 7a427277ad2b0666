#pragma once

#include <cstdint>

namespace baton {

// An entry of a model's vocabulary.
using TokenId = int32_t;

}  // namespace baton
