#pragma once

#include <algorithm>
#include <iterator>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

// Which keywords of JSON schema mean what. Keywords that no draft defines, and annotations,
// constrain nothing.
namespace baton {

template <class List>
bool In(const List& list, std::string_view name) {
  return std::ranges::find(list, name) != std::end(list);
}

// Each of these decides alone what a value is: XGrammar does not look at other keywords beside it.
inline constexpr std::string_view kWholeKeywords[] = {
    "$ref", "const", "enum", "anyOf", "oneOf", "allOf"};
inline constexpr std::string_view kTypeNames[] = {
    "object", "array", "string", "number", "integer", "boolean", "null"};

// Whether a keyword is checked and passed on.
bool IsEnforced(std::string_view name);
// Whether the keyword `name` of `schema` constrains its values in some draft, and is not enforced.
bool IsConstraint(const nlohmann::ordered_json& schema, std::string_view name);
bool IsDefinitions(std::string_view name);

// The keyword that states the address of a schema, from which references in it count: $id, in the
// drafts 3 and 4 id.
const char* BaseKeyword(const nlohmann::ordered_json& root);
// Whether `schema` states an address with that keyword. "#name" is only a name.
bool StatesBase(const nlohmann::ordered_json& schema, std::string_view keyword);

}  // namespace baton
