#include "common/grammar/schema_type.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/chat_format/schema_types.h"
#include "common/grammar/schema_keywords.h"
#include "common/grammar/schema_references.h"
#include "common/grammar/schema_strings.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

ValueTypes TypesOfName(const Json& schema) {
  const Json type = {{"type", schema["type"]}};
  return SchemaTypes(type).Of(type);
}

bool MayBe(const Json& schema, std::string_view wanted) {
  const auto type = schema.find("type");
  if (type == schema.end()) return false;
  if (!type->is_array()) return *type == wanted;
  return std::ranges::any_of(*type, [&](const Json& one) { return one == wanted; });
}

Status ImplyType(Json& schema, const std::string& path) {
  if (schema.contains("type")) return OkStatus();
  std::string_view implied;
  for (const auto& [name, value] : schema.items()) {
    const std::string_view type = TypeOfKeyword(name);
    if (type.empty() || type == implied) continue;
    if (!implied.empty()) {
      return SchemaError(
          fmt::format("{}/{}", path, name),
          fmt::format(
              "keywords of the types {} and {} are only supported beside a type", implied, type));
    }
    implied = type;
  }
  if (!implied.empty()) schema["type"] = implied;
  return OkStatus();
}

Status CheckTypeNames(const Json& schema, const std::string& path) {
  const auto type = schema.find("type");
  if (type == schema.end()) return OkStatus();
  const auto known = [](const Json& one) {
    return one.is_string() && In(kTypeNames, one.get_ref<const std::string&>());
  };
  // XGrammar writes a schema out for each of its types.
  const auto once = [&](const Json& one) { return std::ranges::count(*type, one) == 1; };
  const bool several = type->is_array() && !type->empty() &&
                       type->size() <= std::size(kTypeNames) && std::ranges::all_of(*type, known) &&
                       std::ranges::all_of(*type, once);
  if (several || known(*type)) return OkStatus();
  return SchemaError(path + "/type",
                     fmt::format("must be one of {}, or an array of different ones of these",
                                 fmt::join(kTypeNames, ", ")));
}

void DivideTypes(Json& schema) {
  const auto types = schema.find("type");
  if (types == schema.end() || !types->is_array()) return;
  Json branches = Json::array();
  for (const Json& type : *types) {
    Json branch = {{"type", type}};
    const std::string name = type == "integer" ? "number" : type.get<std::string>();
    for (const auto& [keyword, value] : schema.items()) {
      const std::string_view of = keyword == kTaggedPattern ? "string" : TypeOfKeyword(keyword);
      if (of == name) branch[keyword] = value;
    }
    branches.push_back(std::move(branch));
  }
  Json divided = {{"anyOf", std::move(branches)}};
  if (schema.contains("$defs")) divided["$defs"] = std::move(schema["$defs"]);
  schema = std::move(divided);
}

}  // namespace baton
