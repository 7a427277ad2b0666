#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "common/base/ids.h"
#include "tests/support/fnv1a.h"

namespace baton {

// The last 32 of the 64 bits of FNV-1a over the bytes of the ids, as make_pattern_goldens.py
// computes them.
inline std::string HashOf(const std::vector<TokenId>& tokens) {
  const std::string_view bytes(reinterpret_cast<const char*>(tokens.data()),
                               tokens.size() * sizeof(TokenId));
  return fmt::format("{:08x}", Fnv1a(bytes) & 0xffffffff);
}

}  // namespace baton
