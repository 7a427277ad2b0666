#pragma once

#include <cstdint>
#include <span>

#include <absl/container/flat_hash_map.h>

#include "common/base/token_id.h"

namespace baton {

// Guesses the next tokens of one sequence: those that followed the last time that its last three
// tokens occurred (prompt lookup decoding). Needs no weights. Right where an answer repeats its
// prompt, as in summaries and changes of code.
//
// The length of a guess follows the sequence: it begins with `most` tokens; each token that was
// guessed rightly adds one, and each one that was not takes one away. At 0 the drafter guesses one
// token for itself, which is verified when the token is known anyway.
class LookupDrafter final {
 public:
  explicit LookupDrafter(int32_t most) : most_(most), length_(most) {}

  // The guess for the tokens after `tokens`, at most `limit`; empty if there is none. Each call
  // must have the tokens of the call before as its beginning. They tell how much of its guess was
  // right.
  std::span<const TokenId> Draft(std::span<const TokenId> tokens, int32_t limit);

 private:
  static constexpr int32_t kKeyTokens = 3;

  // That tokens [at, at + count) will be equal to those from `from` on.
  struct Guess {
    int32_t at = 0;
    int32_t from = 0;
    int32_t count = 0;
  };

  void Learn(std::span<const TokenId> tokens);

  const int32_t most_;
  int32_t length_;  // of the next guess
  Guess guess_;     // the last one
  // By a hash of kKeyTokens tokens, the place of the token after them. Guesses may be wrong, so a
  // collision does no harm.
  absl::flat_hash_map<uint64_t, int32_t> after_;
  int32_t indexed_ = kKeyTokens;  // the next place to enter
};

}  // namespace baton
