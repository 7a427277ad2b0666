#pragma once

#include <nlohmann/json_fwd.hpp>

namespace baton {

// Replaces strings and numbers with bounds that occur several times in a resolved schema
// (schema_references.h) by references to one definition, because XGrammar makes rules for each
// occurrence.
void ShareEqualSchemas(nlohmann::ordered_json& root);

}  // namespace baton
