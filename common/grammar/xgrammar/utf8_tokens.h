#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/token_id.h"

namespace baton {

// How far the last character of a text is written in UTF-8 (Unicode 15, table 3-7). kSpecialSign
// counts as a character.
enum class Utf8State : uint8_t {
  kWhole,    // no byte is missing
  kOne,      // one more byte
  kTwo,      // two more bytes
  kThree,    // three more bytes
  kAfterE0,  // two more bytes that do not make an overlong form
  kAfterEd,  // two more bytes that do not make a surrogate
  kAfterF0,  // three more bytes that do not make an overlong form
  kAfterF4,  // three more bytes that do not go beyond U+10FFFF
  kInvalid,
};
constexpr size_t kUtf8States = 8;  // but kInvalid

Utf8State Utf8After(Utf8State state, std::string_view text);

// The tokens that keep a text valid UTF-8, in each state of the text. Automata of grammars allow
// surrogates and overlong forms in some classes, so masks are limited to these tokens. Immutable.
class Utf8Tokens final {
 public:
  // texts[t] is the text of token t.
  explicit Utf8Tokens(const std::vector<std::string>& texts);

  bool Allows(Utf8State state, TokenId token) const {
    const auto at = static_cast<size_t>(token);
    return (masks_[static_cast<size_t>(state)][at / 32] >> at % 32 & 1) != 0;
  }
  // Clears the bits of `mask` for tokens that cannot follow `state`.
  void Limit(Utf8State state, std::span<uint32_t> mask) const;

 private:
  std::array<std::vector<uint32_t>, kUtf8States> masks_;
};

}  // namespace baton
