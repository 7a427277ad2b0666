#pragma once

#include <cstddef>
#include <string_view>

#include "common/base/status.h"

namespace baton {

// Bytes of a client's regular expression or EBNF grammar that an error repeats.
inline constexpr size_t kMaxQuotedText = 16;

// The length of the escape that begins with the backslash at `at` in an EBNF grammar. Refuses what
// XGrammar reads as another character than is meant: \x with another number of digits than two,
// code points beyond Unicode or of surrogates; and the sign of special tokens (marked_formats.h).
// Errors: InvalidArgument.
StatusOr<size_t> CheckedEscape(std::string_view what, std::string_view text, size_t at);

}  // namespace baton
