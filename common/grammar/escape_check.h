#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/base/status.h"

namespace baton {

enum class GrammarText : uint8_t { kRegex, kEbnf };

// The length of the escape that begins with the backslash at `at` in a regular expression or an
// EBNF grammar. Refuses what XGrammar reads as another character than is meant: \x with another
// number of digits than two, code points beyond Unicode or of surrogates, and in a class
// (`in_class`) of a regular expression a control character before a hexadecimal digit, because
// XGrammar joins the two. Errors: InvalidArgument.
StatusOr<size_t> CheckedEscape(
    GrammarText kind, std::string_view what, std::string_view text, size_t at, bool in_class);

}  // namespace baton
