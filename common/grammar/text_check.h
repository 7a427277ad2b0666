#pragma once

#include <cstdint>
#include <string_view>

#include "common/base/status.h"
#include "common/grammar/escape_check.h"

namespace baton {

struct GrammarLimits;

// As below; returns the number of elements when all repetitions are written out.
StatusOr<int64_t> CheckedTextSize(GrammarText kind,
                                  std::string_view what,
                                  std::string_view text,
                                  const GrammarLimits& limits);

// Bounds the length, the nesting of groups and the counts of repetitions of a regular expression or
// of an EBNF grammar (`what`), which XGrammar parses by recursion and expands. The text must be
// UTF-8. Refuses escapes that XGrammar misreads (escape_check.h) and its functions in EBNF, as
// Regex(…), whose arguments would not be checked. Errors: InvalidArgument.
Status CheckGrammarText(GrammarText kind,
                        std::string_view what,
                        std::string_view text,
                        const GrammarLimits& limits);

}  // namespace baton
