#pragma once

#include <cstdint>
#include <string_view>

#include "common/base/status.h"
#include "common/grammar/regex/regex_tree.h"

namespace baton {

// The expression, without anchors, that a whole text matches if `node` matches somewhere in it, as
// the patterns of JSON schema do. Errors: InvalidArgument for an anchor that stands neither at the
// begin nor at the end of the expression or of one of its alternatives.
StatusOr<RegexNode> MatchedSomewhere(std::string_view what, RegexNode node);

// The expression that a whole text matches. Anchors at its begin and its end have no effect there.
// Errors: as above.
StatusOr<RegexNode> MatchedWhole(std::string_view what, RegexNode node);

// The texts of `node` (without anchors) with `least` to `most` characters (RegexNode::kNoLimit).
// All of them where at most one part of each alternative has a length that varies, and repeats
// elements of one length; else some of them (regex_narrow.h). Errors: InvalidArgument when there is
// no such text, or none is found.
StatusOr<RegexNode> WithLength(std::string_view what, RegexNode node, int64_t least, int64_t most);

}  // namespace baton
