#pragma once

#include <xgrammar/grammar.h>

#include "common/base/status.h"

// What follows from all rules of a grammar together. Each function takes time linear in the
// grammar.
namespace baton {

// Checks that a parsed grammar allows an output, and that each call behind a marker in free text
// can end. There is no output where a rule calls itself in all its choices, or a class has no
// character. Errors: InvalidArgument.
Status CheckAllowsOutput(const xgrammar::Grammar& parsed);

// Removes from the automata of a grammar each edge behind which no output can end, so that the
// generation never comes to a state in which no byte is allowed. Errors: InvalidArgument when the
// grammar allows no output.
Status RemoveDeadEnds(xgrammar::Grammar& grammar);

// Lists the rules that may be empty in `grammar`, and lowers the least number of their repetitions
// to 0. XGrammar's own list lacks rules that repeat another rule or call themselves.
void FindEmptyRules(xgrammar::Grammar& grammar);

}  // namespace baton
