#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/base/status.h"

namespace baton {

enum class GrammarText : uint8_t { kRegex, kEbnf };

// Bytes of a client's regular expression or EBNF grammar that an error repeats.
inline constexpr size_t kMaxQuotedText = 16;

// Where an escape stands: outside of classes, or in a class as its first element or a later one.
enum class EscapePlace : uint8_t { kOutside, kClassStart, kInClass };

// The length of the escape that begins with the backslash at `at` in a regular expression or an
// EBNF grammar. Refuses what XGrammar reads as another character than is meant: \x with another
// number of digits than two, and code points beyond Unicode or of surrogates. In a regular
// expression it also refuses a backslash before a character without a special meaning, which
// XGrammar drops; and in a class, which XGrammar writes without some backslashes, a control
// character before a hexadecimal digit, because XGrammar joins the two, and ^ at the start, which
// would negate the class. Errors: InvalidArgument.
StatusOr<size_t> CheckedEscape(
    GrammarText kind, std::string_view what, std::string_view text, size_t at, EscapePlace place);

}  // namespace baton
