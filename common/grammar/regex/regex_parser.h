#pragma once

#include <string_view>

#include "common/base/status.h"
#include "common/grammar/regex/regex_tree.h"

namespace baton {

struct GrammarLimits;

// The tree of a regular expression of ECMA-262, with its meaning of \s, \d, \w, `.`, [] and [^].
// Not supported: lookaround, \b and \B, backreferences, \p, flags. `what` names the expression in
// errors. The length, the nesting of groups and the product of nested counts are bounded. Errors:
// InvalidArgument.
StatusOr<RegexNode> ParseRegex(std::string_view what,
                               std::string_view text,
                               const GrammarLimits& limits);

}  // namespace baton
