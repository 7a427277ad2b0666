#include "common/grammar/schema_merge.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/grammar/schema_keywords.h"
#include "common/grammar/schema_places.h"
#include "common/grammar/schema_references.h"
#include "common/grammar/schema_type.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

// References and schemas of allOf that follow each other.
constexpr int kMaxDepth = 32;
// JSON values that are copied to merge schemas.
constexpr int64_t kMaxCopied = 300'000;

int64_t SizeOf(const Json& value) {
  int64_t size = 1;
  if (value.is_structured()) {
    for (const Json& inner : value) size += SizeOf(inner);
  }
  return size;
}

// What must hold where an object has a property.
constexpr std::string_view kDependencies[] = {
    "dependencies", "dependentRequired", "dependentSchemas"};

bool HasConstraint(const Json& schema, std::string_view name) {
  return IsEnforced(name) || IsConstraint(schema, name);
}

}  // namespace

SchemaMerger::SchemaMerger(const Json& root,
                           const GrammarLimits& limits,
                           SchemaReferences& references)
    : root_(root),
      references_(references),
      types_(root),
      keywords_(limits),
      matcher_(root, limits),
      base_(BaseKeyword(root)) {}

bool SchemaMerger::Needed(const Json& schema) {
  if (!schema.is_object()) return false;
  const auto contained = [&](std::string_view name) { return schema.contains(name); };
  if (std::ranges::any_of(kDependencies, contained)) return true;
  std::string whole;
  for (const std::string_view name : kWholeKeywords) {
    if (!schema.contains(name)) continue;
    if (!whole.empty()) return true;
    whole = name;
  }
  if (whole.empty()) return false;
  for (const auto& [name, ignored] : schema.items()) {
    const bool aside = name == whole || name == "type" || IsDefinitions(name);
    if (!aside && HasConstraint(schema, name)) return true;
  }
  const Json& value = schema[whole];
  if (whole == "allOf" && value.is_array() && value.size() > 1) return true;
  if (!schema.contains("type") || whole == "const" || whole == "enum") return false;
  const ValueTypes types = TypesOfName(schema);
  if (whole == "$ref") return !types_.Of(Json{{"$ref", value}}).Within(types);
  return value.is_array() && !std::ranges::all_of(value, [&](const Json& option) {
           return types_.Of(option).Within(types);
         });
}

StatusOr<Json> SchemaMerger::Merged(const Json& schema, const std::string& path) {
  const Place place = {&schema, path};
  BATON_ASSIGN_OR_RETURN(Json merged, All({&place, 1}, {}, path, 0));
  if (!merged.is_object()) return merged;
  for (const char* keyword : kDefinitionKeywords) {
    if (schema.contains(keyword)) merged[keyword] = schema[keyword];
  }
  return merged;
}

StatusOr<Json> SchemaMerger::All(std::span<const Place> places,
                                 std::span<const Choice> more,
                                 const std::string& path,
                                 int depth) {
  Parts parts;
  for (const Place& place : places) BATON_RETURN_IF_ERROR(Collect(place, depth, parts));
  parts.choices.insert(parts.choices.end(), more.begin(), more.end());
  if (parts.impossible) return Json(false);
  if (!parts.values.empty()) return Filtered(parts, path);
  BATON_RETURN_IF_ERROR(parts.refused);
  if (!parts.choices.empty()) return Distributed(parts, path, depth);
  BATON_ASSIGN_OR_RETURN(Json merged, keywords_.Merged(std::move(parts.plain), path));
  BATON_RETURN_IF_ERROR(Count(merged, path));
  return merged;
}

Status SchemaMerger::Collect(const Place& place, int depth, Parts& parts) {
  const Json& schema = *place.schema;
  if (schema.is_boolean()) {
    parts.impossible = parts.impossible || !schema.get<bool>();
    return OkStatus();
  }
  if (!schema.is_object()) {
    return SchemaError(place.path, "a schema must be an object or true");
  }
  if (depth > kMaxDepth) {
    return SchemaError(place.path,
                       fmt::format("more than {} schemas of allOf and references lead to it, which "
                                   "is not supported",
                                   kMaxDepth));
  }
  if (depth > 0 && !place.path.empty() && StatesBase(schema, base_) && Refers(schema)) {
    return SchemaError(MemberPath(place.path, base_),
                       fmt::format("a schema with {} and references is not supported beside others "
                                   "that a value must match",
                                   base_));
  }
  Json plain = Json::object();
  for (const auto& [name, value] : schema.items()) {
    if (IsDefinitions(name) || In(kWholeKeywords, name) || !HasConstraint(schema, name)) continue;
    if (In(kDependencies, name) && value.is_object()) continue;
    plain[name] = value;
    if (IsEnforced(name) || !parts.refused.ok()) continue;
    parts.refused = SchemaError(MemberPath(place.path, name),
                                fmt::format("the keyword {} is not supported", name));
  }
  BATON_RETURN_IF_ERROR(CheckTypeNames(plain, place.path));
  BATON_RETURN_IF_ERROR(Count(plain, place.path));
  if (!plain.empty()) parts.plain.push_back(std::move(plain));
  // The choices of the schema itself come before those of others.
  for (const char* keyword : {"anyOf", "oneOf"}) {
    if (schema.contains(keyword)) BATON_RETURN_IF_ERROR(CollectChoice(place, keyword, parts));
  }
  if (schema.contains("const")) parts.values.push_back(Json::array({schema["const"]}));
  if (schema.contains("enum")) {
    if (!schema["enum"].is_array()) {
      return SchemaError(place.path + "/enum", "must be an array of values");
    }
    BATON_RETURN_IF_ERROR(Count(schema["enum"], place.path));
    parts.values.push_back(schema["enum"]);
  }
  CollectDependencies(place, parts);
  return CollectInner(place, depth, parts);
}

// The schemas of allOf and of a reference.
Status SchemaMerger::CollectInner(const Place& place, int depth, Parts& parts) {
  const Json& schema = *place.schema;
  if (schema.contains("allOf")) {
    const Json& all = schema["allOf"];
    if (!all.is_array()) return SchemaError(place.path + "/allOf", "must be an array of schemas");
    for (size_t i = 0; i < all.size(); ++i) {
      const Place inner = {&all[i], fmt::format("{}/allOf/{}", place.path, i)};
      BATON_RETURN_IF_ERROR(Collect(inner, depth + 1, parts));
    }
  }
  if (!schema.contains("$ref")) return OkStatus();
  BATON_ASSIGN_OR_RETURN(const Place target, Target(place));
  return Collect(target, depth + 1, parts);
}

// Either there is the property, and what depends on it, or there is not.
void SchemaMerger::CollectDependencies(const Place& place, Parts& parts) {
  for (const std::string_view keyword : kDependencies) {
    const auto found = place.schema->find(keyword);
    if (found == place.schema->end() || !found->is_object()) continue;
    const std::string path = MemberPath(place.path, keyword);
    for (const auto& [name, dependent] : found->items()) {
      const Json present = {{"required", Json::array({name})}};
      Json needed = dependent;
      if (needed.is_array()) needed = {{"required", dependent}};
      const Json absent = {{"properties", {{name, false}}}};
      parts.made.push_back(Json::array({Json{{"allOf", Json::array({present, needed})}}, absent}));
      parts.choices.push_back({"anyOf", &parts.made.back(), MemberPath(path, name)});
    }
  }
}

Status SchemaMerger::CollectChoice(const Place& place, const char* keyword, Parts& parts) const {
  const Json& options = (*place.schema)[keyword];
  std::string path = MemberPath(place.path, keyword);
  if (!options.is_array() || options.empty()) {
    return SchemaError(path, "must be an array of schemas");
  }
  parts.choices.push_back({keyword, &options, std::move(path)});
  return OkStatus();
}

StatusOr<SchemaMerger::Place> SchemaMerger::Target(const Place& reference) const {
  const std::string at = reference.path + "/$ref";
  const Json& target = (*reference.schema)["$ref"];
  if (!target.is_string()) return SchemaError(at, "must be a string");
  const auto& text = target.get_ref<const std::string&>();
  const Json* found = TargetOf(root_, text);
  if (found == nullptr) return SchemaReferences::Unknown(at, text);
  // From a schema with an address of its own, references lead elsewhere.
  for (size_t end = text.find('/', 2); end != std::string::npos; end = text.find('/', end + 1)) {
    if (StatesBase(*TargetOf(root_, text.substr(0, end)), base_)) {
      return SchemaError(
          at, fmt::format("a reference into a schema with {} is not supported here", base_));
    }
  }
  references_.AddReplaced(at, text);
  return Place{found, text.substr(1)};
}

StatusOr<Json> SchemaMerger::Filtered(const Parts& parts, const std::string& path) {
  Json kept = Json::array();
  for (const Json& value : parts.values[0]) {
    std::optional<bool> all = true;
    const auto also = [&](std::optional<bool> one) {
      if (all == true || one == false) all = one;
    };
    for (const Json& values : parts.values) also(matcher_.Matches({{"enum", values}}, value));
    for (const Json& plain : parts.plain) also(matcher_.Matches(plain, value));
    for (const Choice& choice : parts.choices) {
      also(matcher_.Matches({{choice.keyword, *choice.options}}, value));
    }
    if (!all.has_value()) {
      return SchemaError(path,
                         "whether the values of enum or const match the keywords beside them is "
                         "not known, so this is not supported");
    }
    if (*all) kept.push_back(value);
  }
  if (kept.empty()) return Json(false);
  return Json{{"enum", std::move(kept)}};
}

StatusOr<Json> SchemaMerger::Distributed(const Parts& parts, const std::string& path, int depth) {
  const Choice& choice = parts.choices[0];
  const std::span<const Choice> others = std::span(parts.choices).subspan(1);
  Json options = Json::array();
  bool possible = false;
  for (size_t i = 0; i < choice.options->size(); ++i) {
    std::vector<Place> places;
    for (const Json& plain : parts.plain) places.push_back({&plain, path});
    places.push_back({&(*choice.options)[i], fmt::format("{}/{}", choice.path, i)});
    BATON_ASSIGN_OR_RETURN(Json option, All(places, others, places.back().path, depth + 1));
    possible = possible || option != false;
    options.push_back(std::move(option));
  }
  if (!possible) return Json(false);
  return Json{{choice.keyword, std::move(options)}};
}

Status SchemaMerger::Count(const Json& copied, const std::string& path) {
  copied_ += SizeOf(copied);
  if (copied_ <= kMaxCopied) return OkStatus();
  return SchemaError(path,
                     fmt::format("the schemas that values must match at once have more than {} "
                                 "values when they are combined",
                                 kMaxCopied));
}

}  // namespace baton
