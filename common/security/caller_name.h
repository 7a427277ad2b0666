#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace baton {

// Whether a name that a token or a certificate states is safe in logs, ids and salts.
inline bool IsCallerName(std::string_view name) {
  constexpr size_t kMaxBytes = 128;
  return !name.empty() && name.size() <= kMaxBytes &&
         std::all_of(
             name.begin(), name.end(), [](char c) { return c > ' ' && c < 0x7f && c != '/'; });
}

}  // namespace baton
