#include "common/engine/lookup_drafter.h"

#include <algorithm>

#include <absl/hash/hash.h>

namespace baton {

std::span<const TokenId> LookupDrafter::Draft(std::span<const TokenId> tokens, int32_t limit) {
  const auto end = static_cast<int32_t>(tokens.size());
  if (end < kKeyTokens || limit < 1) return {};
  const auto key = [&](int32_t place) {
    return absl::HashOf(tokens[place - 3], tokens[place - 2], tokens[place - 1]);
  };
  static_assert(kKeyTokens == 3);
  for (; indexed_ < end; ++indexed_) after_[key(indexed_)] = indexed_;
  const auto found = after_.find(key(end));
  if (found == after_.end()) return {};
  return tokens.subspan(found->second, std::min(limit, end - found->second));
}

}  // namespace baton
