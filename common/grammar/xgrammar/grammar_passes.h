#pragma once

#include <xgrammar/grammar.h>

#include "common/base/status.h"

namespace baton {

// The grammar with the automata of its rules, as matchers need it; `parsed` is changed, not copied.
// XGrammar's own passes, but two: a repetition stays a counter of the parser, where XGrammar writes
// up to 128 repetitions out, and equal rules become one (equal_rules.h). The automaton of a rule
// counts its states from 0; in the automaton of the grammar they follow those of the rules before
// it. Dead ends are removed (rule_facts.h). Called within CallXGrammar.
// Takes some 0.2 s at most. Errors: InvalidArgument when it would take longer, when the grammar
// takes too much memory, and when it allows no output.
StatusOr<xgrammar::Grammar> Optimised(xgrammar::Grammar parsed);

// Checks that Optimised neither takes too long nor too much memory. Errors: as above.
Status CheckOptimisingCost(const xgrammar::Grammar& parsed);

}  // namespace baton
