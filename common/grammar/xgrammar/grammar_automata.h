#pragma once

#include <xgrammar/grammar.h>

namespace baton {

// Builds the automata of all rules, as xgrammar::GrammarFSMBuilder does. Most rules are choices of
// bytes and calls in sequence; the automata of these are written without the empty edges that
// XGrammar adds and removes again.
void BuildAutomata(xgrammar::Grammar& grammar);

}  // namespace baton
