#pragma once

#include <cstdint>

#include "common/grammar/regex/regex_tree.h"

namespace baton {

// Expressions, without anchors, of fewer texts. Where several parts vary in length, each gets a
// share of what is left, so some texts of the wanted lengths are lost, too.

// Of texts with at most `most` characters. `node` has a text that is so short.
RegexNode NarrowedToMost(RegexNode node, int64_t most);

// Of texts with at least `least` characters. `node` has a text that is so long.
RegexNode NarrowedToLeast(RegexNode node, int64_t least);

}  // namespace baton
