#pragma once

#include <string_view>

#include "common/base/status.h"
#include "common/grammar/escape_check.h"

namespace baton {

struct GrammarLimits;

// Checks that a client's text (`what`) is UTF-8 without NUL and without the sign of special tokens,
// and neither empty nor too long.
// Errors: InvalidArgument.
Status CheckTextBytes(std::string_view what, std::string_view text, const GrammarLimits& limits);

// Bounds the length, the nesting of groups and the counts of repetitions of an EBNF grammar
// (`what`), which XGrammar parses by recursion and expands. Refuses escapes that XGrammar misreads
// (escape_check.h) and its functions, as Regex(…), whose arguments would not be checked. Errors:
// InvalidArgument.
Status CheckEbnf(std::string_view what, std::string_view text, const GrammarLimits& limits);

}  // namespace baton
