#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"
#include "common/chat_format/schema_types.h"

// The keyword `type` of one schema.
namespace baton {

// The types of values that `schema` allows by its type alone.
ValueTypes TypesOfName(const nlohmann::ordered_json& schema);

// Whether the schema has a type, and `wanted` is one of its types.
bool MayBe(const nlohmann::ordered_json& schema, std::string_view wanted);

// Without a type, XGrammar would take any value. The keywords mean values of one type; values of
// other types, which the schema allows as well, are left out. Errors: InvalidArgument for keywords
// of several types.
Status ImplyType(nlohmann::ordered_json& schema, const std::string& path);

// Checks that the type, if there is one, is a known one or different known ones. Errors:
// InvalidArgument.
Status CheckTypeNames(const nlohmann::ordered_json& schema, const std::string& path);

// Makes one schema of each type, with the keywords of that type. XGrammar would make copies with
// all keywords, and would not know a plain type with others beside it.
void DivideTypes(nlohmann::ordered_json& schema);

}  // namespace baton
