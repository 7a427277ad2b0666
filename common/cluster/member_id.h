#pragma once

#include <cstddef>
#include <string_view>

#include "common/base/status.h"

namespace baton {

// The most bytes that the id of a worker or router may have.
inline constexpr size_t kMaxMemberId = 256;

// Whether `text` has a byte below 0x20 or 0x7f: a line end or another control character, which
// would divide a line of the log.
bool HasControlCharacter(std::string_view text);

// InvalidArgument unless `id`, the value of `field`, has at most kMaxMemberId bytes and no control
// character.
Status CheckMemberId(std::string_view field, std::string_view id);

}  // namespace baton
