#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

namespace baton {

// The keywords under which definitions stand.
inline constexpr const char* kDefinitionKeywords[] = {"$defs", "definitions"};

// Calls `visit` for each schema directly inside of the checked schema `schema`, and not for values
// such as those of `enum`.
template <class Schema, class Visit>
void VisitInner(Schema& schema, const Visit& visit) {
  if (!schema.is_object()) return;
  for (auto& [key_text, value] : schema.items()) {
    const std::string_view name = key_text;  // compared by length first
    if (name == "properties" || name == "patternProperties" || name == "$defs" ||
        name == "definitions") {
      for (auto& [key, inner] : value.items()) visit(inner);
    } else if (name == "items" || name == "additionalProperties") {
      visit(value);
    } else if (name == "anyOf" || name == "oneOf" || name == "allOf" || name == "prefixItems") {
      for (auto& inner : value) visit(inner);
    }
  }
}

}  // namespace baton
