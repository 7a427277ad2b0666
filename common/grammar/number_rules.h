#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "common/grammar/ebnf_rules.h"

namespace baton {

// An expression of the numbers that `schema` allows, as JSON writes them. `schema` was checked and
// has the type integer or number. Numbers with bounds have no exponent, and a bounded number of
// digits behind the point, so that a bound is not reached by rounding.
std::string NumberExpression(const nlohmann::ordered_json& schema, EbnfRules& rules);

}  // namespace baton
