#include "common/grammar/keyword_merge.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/chat_format/schema_types.h"
#include "common/grammar/grammar_spec.h"
#include "common/grammar/regex/regex_anchors.h"
#include "common/grammar/regex/regex_parser.h"
#include "common/grammar/regex/regex_tree.h"
#include "common/grammar/schema_keywords.h"
#include "common/grammar/schema_references.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kLowerBounds[] = {
    "minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"};
constexpr std::string_view kUpperBounds[] = {
    "maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"};
constexpr std::string_view kOfMembers[] = {
    "properties", "required", "additionalProperties", "patternProperties"};
constexpr int64_t kMaxMultiple = int64_t{1} << 31;

std::vector<std::string> TypesIn(const Json& type) {
  if (!type.is_array()) return {type.get<std::string>()};
  return type.get<std::vector<std::string>>();
}

bool Has(const std::vector<std::string>& types, std::string_view type) {
  return std::ranges::find(types, type) != types.end();
}

// The types of both; an integer is a number.
std::vector<std::string> CommonTypes(const std::vector<std::string>& some,
                                     const std::vector<std::string>& others) {
  std::vector<std::string> common;
  const auto within = [](const std::vector<std::string>& types, const std::string& type) {
    return Has(types, type) || (type == "integer" && Has(types, "number"));
  };
  for (const std::string& type : some) {
    if (within(others, type)) common.push_back(type);
  }
  for (const std::string& type : others) {
    if (within(some, type) && !Has(common, type)) common.push_back(type);
  }
  return common;
}

void SetTypes(const std::vector<std::string>& types, Json& schema) {
  schema["type"] = types.size() == 1 ? Json(types[0]) : Json(types);
}

// Removes the keywords of other types than `types`.
void DropOtherKeywords(const std::vector<std::string>& types, Json& schema) {
  std::vector<std::string> others;
  for (const auto& [name, value] : schema.items()) {
    const std::string_view type = TypeOfKeyword(name);
    const bool kept =
        type.empty() || Has(types, type) || (type == "number" && Has(types, "integer"));
    if (!kept) others.push_back(name);
  }
  for (const std::string& name : others) schema.erase(name);
}

// The values that match all of `schemas`.
Json AllOf(const Json& schemas) {
  Json different = Json::array();
  for (const Json& schema : schemas) {
    if (schema == false) return false;
    const bool free = schema == true || (schema.is_object() && schema.empty());
    if (!free && std::ranges::find(different, schema) == different.end()) {
      different.push_back(schema);
    }
  }
  if (different.empty()) return true;
  if (different.size() == 1) return different[0];
  return Json{{"allOf", std::move(different)}};
}

// The value of a keyword that stands in two schemas.
StatusOr<Json> Both(const std::string& name,
                    const Json& a,
                    const Json& b,
                    const std::string& path) {
  if (a == b) return a;
  if (name == "items") return AllOf(Json::array({a, b}));
  if (a.is_number() && b.is_number()) {
    if (In(kLowerBounds, name)) return std::max(a, b);
    if (In(kUpperBounds, name)) return std::min(a, b);
  }
  const auto is_multiple = [](const Json& value) {
    return value.is_number_integer() && value > 0 && value < kMaxMultiple;
  };
  if (name == "multipleOf" && is_multiple(a) && is_multiple(b)) {
    return Json(std::lcm(a.get<int64_t>(), b.get<int64_t>()));
  }
  return SchemaError(MemberPath(path, name),
                     fmt::format("values must match two schemas whose {} differs, which is not "
                                 "supported",
                                 name));
}

Status CheckMembers(const Json& part, const std::string& path) {
  for (const char* name : {"properties", "patternProperties"}) {
    if (part.contains(name) && !part[name].is_object()) {
      return SchemaError(MemberPath(path, name), "must be an object");
    }
  }
  if (!part.contains("required")) return OkStatus();
  const Json& required = part["required"];
  const bool names = required.is_array() && std::ranges::all_of(required, [](const Json& name) {
                       return name.is_string();
                     });
  return names ? OkStatus() : SchemaError(path + "/required", "must be an array of strings");
}

bool HasPatterns(const Json& part) {
  return part.contains("patternProperties") && !part["patternProperties"].empty();
}

// Merges objects that neither declare nor require properties.
Status MergeOpenObjects(const std::vector<Json>& parts, const std::string& path, Json& out) {
  const Json* patterns = nullptr;
  Json others = Json::array();  // the schemas of all members
  for (const Json& part : parts) {
    if (HasPatterns(part)) {
      patterns = &part["patternProperties"];
    } else if (part.contains("additionalProperties")) {
      others.push_back(part["additionalProperties"]);
    }
  }
  const Json of_all = AllOf(others);
  if (patterns == nullptr || of_all == false) {
    if (!others.empty()) out["additionalProperties"] = of_all;
    return OkStatus();
  }
  Json& merged = out["patternProperties"] = Json::object();
  for (const auto& [pattern, ignored] : patterns->items()) {
    Json schemas = others;
    for (const Json& part : parts) {
      if (!HasPatterns(part)) continue;
      const Json& own = part["patternProperties"];
      if (own.size() != patterns->size() || !own.contains(pattern)) {
        return SchemaError(path + "/patternProperties",
                           "objects must match two schemas whose patterns of names differ, which "
                           "is not supported");
      }
      schemas.push_back(own[pattern]);
    }
    merged[pattern] = AllOf(schemas);
  }
  return OkStatus();
}

}  // namespace

StatusOr<bool> KeywordMerger::MatchesName(const std::string& pattern,
                                          const std::string& name,
                                          const std::string& path) {
  const std::string what = ShownPath(MemberPath(path + "/patternProperties", pattern));
  BATON_ASSIGN_OR_RETURN(RegexNode node, ParseRegex(what, pattern, limits_));
  BATON_ASSIGN_OR_RETURN(node, MatchedSomewhere(what, std::move(node)));
  matched_ += SizeOf(node) * static_cast<int64_t>(name.size() + 1);
  if (matched_ > limits_.max_pattern_work) {
    return SchemaError(path + "/patternProperties",
                       "takes too long to compare with the names of properties");
  }
  return Matches(node, name);
}

Status KeywordMerger::AddOfProperty(const Json& part,
                                    const std::string& name,
                                    const std::string& path,
                                    Json& out) {
  bool stated = false;
  if (part.contains("properties") && part["properties"].contains(name)) {
    out.push_back(part["properties"][name]);
    stated = true;
  }
  if (HasPatterns(part)) {
    for (const auto& [pattern, schema] : part["patternProperties"].items()) {
      BATON_ASSIGN_OR_RETURN(const bool matches, MatchesName(pattern, name, path));
      if (matches) out.push_back(schema);
      stated = stated || matches;
    }
  }
  if (!stated && part.contains("additionalProperties")) out.push_back(part["additionalProperties"]);
  return OkStatus();
}

StatusOr<bool> KeywordMerger::MergeObjects(const std::vector<Json>& parts,
                                           const std::string& path,
                                           Json& out) {
  std::vector<std::string> names;
  std::set<std::string> known;
  Json required = Json::array();
  const auto add = [&](const std::string& name) {
    if (known.insert(name).second) names.push_back(name);
  };
  for (const Json& part : parts) {
    BATON_RETURN_IF_ERROR(CheckMembers(part, path));
    if (!part.contains("properties")) continue;
    for (const auto& [name, ignored] : part["properties"].items()) add(name);
  }
  for (const Json& part : parts) {
    if (!part.contains("required")) continue;
    for (const Json& name : part["required"]) {
      add(name.get<std::string>());
      if (std::ranges::find(required, name) == required.end()) required.push_back(name);
    }
  }
  if (names.empty()) {
    BATON_RETURN_IF_ERROR(MergeOpenObjects(parts, path, out));
    return true;
  }
  Json properties = Json::object();
  for (const std::string& name : names) {
    Json schemas = Json::array();
    for (const Json& part : parts) {
      BATON_RETURN_IF_ERROR(AddOfProperty(part, name, path, schemas));
    }
    properties[name] = AllOf(schemas);
  }
  const bool closed = std::ranges::any_of(parts, [](const Json& part) {
    return part.value("additionalProperties", Json(true)) == false && !HasPatterns(part);
  });
  const bool possible = std::ranges::none_of(
      required, [&](const Json& name) { return properties[name.get<std::string>()] == false; });
  out["properties"] = std::move(properties);
  if (!required.empty()) out["required"] = std::move(required);
  if (closed) out["additionalProperties"] = false;
  return possible;
}

StatusOr<Json> KeywordMerger::Merged(std::vector<Json> parts, const std::string& path) {
  std::optional<std::vector<std::string>> types;
  for (const Json& part : parts) {
    if (!part.contains("type")) continue;
    const std::vector<std::string> own = TypesIn(part["type"]);
    types = types.has_value() ? CommonTypes(*types, own) : own;
  }
  if (types.has_value() && types->empty()) return Json(false);
  Json out = Json::object();
  if (types.has_value()) {
    SetTypes(*types, out);
    for (Json& part : parts) DropOtherKeywords(*types, part);
  }
  BATON_ASSIGN_OR_RETURN(const bool objects, MergeObjects(parts, path, out));
  if (!objects) {
    if (!types.has_value() || *types == std::vector<std::string>{"object"}) return Json(false);
    std::erase(*types, "object");
    SetTypes(*types, out);
    DropOtherKeywords(*types, out);
    for (Json& part : parts) DropOtherKeywords(*types, part);
  }
  const auto has_prefix = [](const Json& part) { return part.contains("prefixItems"); };
  const auto has_items = [](const Json& part) {
    return part.contains("prefixItems") || part.contains("items");
  };
  if (std::ranges::any_of(parts, has_prefix) && std::ranges::count_if(parts, has_items) > 1) {
    return SchemaError(path + "/prefixItems",
                       "arrays must match two schemas that describe items, which is not supported");
  }
  for (const Json& part : parts) {
    for (const auto& [name, value] : part.items()) {
      if (name == "type" || In(kOfMembers, name)) continue;
      if (!out.contains(name)) {
        out[name] = value;
      } else {
        BATON_ASSIGN_OR_RETURN(out[name], Both(name, out[name], value, path));
      }
    }
  }
  return out;
}

}  // namespace baton
