#pragma once

#include <cstdint>
#include <span>

#include <absl/container/flat_hash_map.h>

#include "common/base/token_id.h"

namespace baton {

// Guesses the next tokens of one sequence: those that followed the last time that its last three
// tokens occurred (prompt lookup decoding). Needs no weights. Right where an answer repeats its
// prompt, as in summaries and changes of code.
class LookupDrafter final {
 public:
  // The guess for the tokens after `tokens`, at most `limit`; empty if there is none. Each call
  // must have the tokens of the call before as its beginning.
  std::span<const TokenId> Draft(std::span<const TokenId> tokens, int32_t limit);

 private:
  static constexpr int32_t kKeyTokens = 3;

  // By a hash of kKeyTokens tokens, the place of the token after them. Guesses may be wrong, so a
  // collision does no harm.
  absl::flat_hash_map<uint64_t, int32_t> after_;
  int32_t indexed_ = kKeyTokens;  // the next place to enter
};

}  // namespace baton
