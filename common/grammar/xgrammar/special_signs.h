#pragma once

#include <xgrammar/grammar.h>

namespace baton {

// Turns each kGrammarSign in the texts of `grammar`, which is parsed and not optimised, into the
// byte kSpecialSign. Classes of characters never have that byte, and free text has it only in
// special tokens. Called within CallXGrammar.
void ReadSigns(xgrammar::Grammar& grammar);

}  // namespace baton
