#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/base/status.h"

namespace baton {

enum class GrammarText : uint8_t { kRegex, kEbnf };

// Bytes of a client's regular expression or EBNF grammar that an error repeats.
inline constexpr size_t kMaxQuotedText = 16;

// The length of the escape that begins with the backslash at `at` in a regular expression or an
// EBNF grammar. Refuses what XGrammar reads as another character than is meant: \x with another
// number of digits than two, code points beyond Unicode or of surrogates, in a regular expression a
// backslash before a control character or a character beyond ASCII, and in a class (`in_class`) of
// a regular expression a control character before a hexadecimal digit, because XGrammar joins the
// two. Errors: InvalidArgument.
StatusOr<size_t> CheckedEscape(
    GrammarText kind, std::string_view what, std::string_view text, size_t at, bool in_class);

}  // namespace baton
