#pragma once

#include <xgrammar/grammar.h>

namespace baton {

// Lets calls of equal rules call one of them. XGrammar writes a rule for each place of white space
// and for each property, and makes an automaton of each. The rules that nothing calls any more stay
// in `grammar`, whose other rules keep their numbers.
void ShareEqualRules(xgrammar::Grammar& grammar);

}  // namespace baton
