#pragma once

#include <nlohmann/json_fwd.hpp>

namespace baton {

// Replaces strings and numbers with bounds that occur several times in a checked schema by
// references to one definition, because XGrammar makes rules for each occurrence.
void ShareEqualSchemas(nlohmann::ordered_json& root);

}  // namespace baton
