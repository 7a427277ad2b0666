#pragma once

#include <cstdint>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"

namespace baton {

struct GrammarLimits;

enum class SchemaUse : uint8_t {
  kJson,
  kCall,  // of the arguments of a call, in which strings have no markers; adds kTaggedPattern
};

// Checks that every keyword of a JSON schema (draft 2020-12) is one that is enforced, and that no
// reference leads back to itself without a value between. Returns the schema in the form that
// XGrammar must get, which allows a subset of the values: objects that declare properties get
// "additionalProperties": false. Errors: InvalidArgument naming the keyword and its path.
StatusOr<nlohmann::ordered_json> CheckedSchema(const nlohmann::ordered_json& schema,
                                               const GrammarLimits& limits,
                                               SchemaUse use = SchemaUse::kJson);

}  // namespace baton
