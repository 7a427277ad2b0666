#include "common/grammar/schema_keywords.h"

#include <string>

#include <nlohmann/json.hpp>

#include "common/chat_format/schema_types.h"
#include "common/grammar/schema_places.h"

namespace baton {
namespace {

// Of all drafts, also where only an earlier one defines them.
constexpr std::string_view kNotEnforced[] = {"not",
                                             "if",
                                             "then",
                                             "else",
                                             "dependentRequired",
                                             "dependentSchemas",
                                             "dependencies",
                                             "propertyNames",
                                             "contains",
                                             "minContains",
                                             "maxContains",
                                             "additionalItems",
                                             "uniqueItems",
                                             "unevaluatedItems",
                                             "unevaluatedProperties",
                                             "$dynamicRef",
                                             "$recursiveRef",
                                             "divisibleBy",
                                             "disallow",
                                             "extends"};

}  // namespace

bool IsDefinitions(std::string_view name) {
  return In(kDefinitionKeywords, name);
}

bool IsEnforced(std::string_view name) {
  return name == "type" || In(kWholeKeywords, name) || IsDefinitions(name) ||
         !TypeOfKeyword(name).empty();
}

bool IsConstraint(const nlohmann::ordered_json& schema, std::string_view name) {
  if (name == "uniqueItems" && *schema.find(name) == false) return false;
  // It is about the items behind those that an array of schemas describes.
  if (name == "additionalItems" && !schema.value("items", nlohmann::ordered_json()).is_array()) {
    return false;
  }
  return In(kNotEnforced, name);
}

const char* BaseKeyword(const nlohmann::ordered_json& root) {
  if (!root.is_object()) return "$id";
  const auto draft = root.find("$schema");
  if (draft == root.end() || !draft->is_string()) return "$id";
  const auto& name = draft->get_ref<const std::string&>();
  const bool old =
      name.find("draft-03") != std::string::npos || name.find("draft-04") != std::string::npos;
  return old ? "id" : "$id";
}

bool StatesBase(const nlohmann::ordered_json& schema, std::string_view keyword) {
  const auto found = schema.find(keyword);
  if (found == schema.end() || !found->is_string()) return false;
  return !found->get_ref<const std::string&>().starts_with('#');
}

}  // namespace baton
