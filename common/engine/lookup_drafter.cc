#include "common/engine/lookup_drafter.h"

#include <algorithm>
#include <utility>

#include <absl/hash/hash.h>

namespace baton {

std::span<const TokenId> LookupDrafter::Draft(std::span<const TokenId> tokens, int32_t limit) {
  const auto end = static_cast<int32_t>(tokens.size());
  if (end < kKeyTokens || limit < 1) return {};
  Learn(tokens);
  const auto key = [&](int32_t place) {
    return absl::HashOf(tokens[place - 3], tokens[place - 2], tokens[place - 1]);
  };
  static_assert(kKeyTokens == 3);
  for (; indexed_ < end; ++indexed_) after_[key(indexed_)] = indexed_;
  const auto found = after_.find(key(end));
  if (found == after_.end()) return {};
  const int32_t count = std::min({limit, length_, end - found->second});
  guess_ = {.at = end, .from = found->second, .count = std::max(count, 1)};
  return tokens.subspan(found->second, count);
}

// Tokens after the first wrong one were guessed behind a wrong token.
void LookupDrafter::Learn(std::span<const TokenId> tokens) {
  const Guess guess = std::exchange(guess_, {});
  const auto known = tokens.subspan(guess.at);
  int32_t right = 0;
  while (right < guess.count && std::cmp_less(right, known.size())) {
    if (known[right] != tokens[guess.from + right]) {
      length_ -= guess.count - right;
      break;
    }
    ++right;
  }
  length_ = std::clamp(length_ + right, 0, most_);
}

}  // namespace baton
