#pragma once

#include <xgrammar/grammar.h>

#include <nlohmann/json_fwd.hpp>

namespace baton {

// Narrows the rules that XGrammar gives to all JSON in the grammar of `spec`: the escapes of a
// string name no surrogate without its other half, and numbers fit into a double. Called within
// CallXGrammar.
void NarrowJsonRules(const nlohmann::ordered_json& spec, xgrammar::Grammar& grammar);

}  // namespace baton
