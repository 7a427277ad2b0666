#include "common/grammar/schema_references.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/shortened.h"
#include "common/chat_format/schema_types.h"
#include "common/grammar/horn_clauses.h"
#include "common/grammar/schema_places.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kWhole = "#";

constexpr std::string_view kDefinitions = "#/$defs/";

std::string DefinitionOf(int number) {
  return fmt::format("{}{}", kDefinitions, number);
}

// Replaces the targets of all references in `schema`, except of unknown ones.
void Retarget(Json& schema, const std::map<std::string, std::string>& targets) {
  if (!schema.is_object()) return;
  if (const auto found = schema.find("$ref"); found != schema.end()) {
    const auto target = targets.find(found->get<std::string>());
    if (target != targets.end()) *found = target->second;
  }
  VisitInner(schema, [&](Json& inner) { Retarget(inner, targets); });
}

// Adds the targets of all that looks like a reference, as paths.
void AddTargets(const Json& value, std::set<std::string>& targets) {
  if (!value.is_structured()) return;
  const auto found = value.find("$ref");
  if (found != value.end() && found->is_string()) {
    const auto& target = found->get_ref<const std::string&>();
    if (target.starts_with(kWhole)) targets.insert(target.substr(kWhole.size()));
  }
  for (const Json& inner : value) AddTargets(inner, targets);
}

void DropDefinitions(Json& schema) {
  if (!schema.is_object()) return;
  for (const char* keyword : kDefinitionKeywords) schema.erase(keyword);
  VisitInner(schema, [](Json& inner) { DropDefinitions(inner); });
}

// Adds the numbers of the definitions, 0 for the whole schema, that describe the same value as
// `schema` does.
void AddSameValue(const Json& schema, std::vector<int32_t>& targets) {
  if (!schema.is_object()) return;
  if (const auto found = schema.find("$ref"); found != schema.end()) {
    const auto target = found->get<std::string>();
    targets.push_back(target == kWhole ? 0 : std::stoi(target.substr(kDefinitions.size())));
  }
  for (const char* keyword : {"anyOf", "oneOf", "allOf"}) {
    const auto found = schema.find(keyword);
    if (found == schema.end()) continue;
    for (const Json& option : *found) AddSameValue(option, targets);
  }
}

}  // namespace

std::string ShownPath(const std::string& path) {
  if (path.size() <= kMaxQuotedMember) return path;
  size_t begin = path.size() - kMaxQuotedMember;
  while ((path[begin] & 0xC0) == 0x80) ++begin;  // to the beginning of a character
  return "…" + path.substr(begin);
}

bool Refers(const Json& value) {
  return value.is_structured() &&
         ((value.is_object() && value.contains("$ref")) || std::ranges::any_of(value, Refers));
}

std::string MemberPath(const std::string& path, std::string_view name) {
  return absl::StrCat(
      path, "/", absl::StrReplaceAll({name.data(), name.size()}, {{"~", "~0"}, {"/", "~1"}}));
}

Status SchemaError(const std::string& path, std::string_view why) {
  return InvalidArgument("{}: {}", path.empty() ? "the schema" : ShownPath(path), why);
}

SchemaReferences::SchemaReferences(const Json& root) : root_(root) {
  AddTargets(root, wanted_);
}

Status SchemaReferences::CheckTargets() const {
  for (const Reference& reference : references_) {
    const std::string& target = reference.target;
    // A percent sign begins an escape of URIs, which is not decoded here. Merged schemas have
    // places that the client's schema does not have.
    const bool known = target.starts_with(kWhole) && target.find('%') == std::string::npos &&
                       places_.contains(target.substr(kWhole.size())) &&
                       TargetOf(root_, target) != nullptr;
    if (!known) return Unknown(reference.at, target);
  }
  return OkStatus();
}

Status SchemaReferences::Unknown(const std::string& at, const std::string& target) {
  return SchemaError(
      at,
      fmt::format("the reference {} is not supported: it must be # or lead to a schema inside of "
                  "this one, as #/$defs/name, #/definitions/name, #/properties/name or #/items; "
                  "values such as those of default, examples, enum and const are not schemas",
                  Shortened(target, kMaxQuotedMember)));
}

Status SchemaReferences::Resolve(Json& root) const {
  BATON_RETURN_IF_ERROR(CheckTargets());
  std::map<std::string, std::string> targets;      // the new ones by the old ones
  std::vector<const Reference*> firsts(1);         // the first references to # and to definition i
  std::vector<std::pair<std::string, int>> moved;  // paths, and the numbers of definitions
  for (const Reference& reference : references_) {
    if (reference.replaced) continue;
    if (reference.target == kWhole) {
      firsts[0] = &reference;
    } else if (!targets.contains(reference.target)) {
      const auto number = static_cast<int>(firsts.size());
      firsts.push_back(&reference);
      targets.emplace(reference.target, DefinitionOf(number));
      moved.emplace_back(reference.target.substr(kWhole.size()), number);
    }
  }
  Retarget(root, targets);
  // The inner ones first: their paths are longer than those of the schemas around them.
  std::ranges::sort(moved, std::greater(), [](const auto& one) { return one.first.size(); });
  std::vector<Json> definitions(firsts.size());
  for (const auto& [path, number] : moved) {
    Json& place = root.at(Json::json_pointer(path));
    Json reference = {{"$ref", DefinitionOf(number)}};
    definitions[static_cast<size_t>(number)] = std::exchange(place, std::move(reference));
  }
  DropDefinitions(root);
  definitions[0] = root;
  for (Json& definition : definitions) DropDefinitions(definition);
  BATON_RETURN_IF_ERROR(CheckCircles(definitions, firsts));
  if (definitions.size() == 1) return OkStatus();
  Json& written = root["$defs"] = Json::object();
  for (size_t i = 1; i < definitions.size(); ++i) {
    written[std::to_string(i)] = std::move(definitions[i]);
  }
  return OkStatus();
}

// The facts are the schemas: each describes a value if all do that describe the same one.
Status SchemaReferences::CheckCircles(const std::vector<Json>& schemas,
                                      const std::vector<const Reference*>& firsts) {
  std::vector<std::vector<int32_t>> same(schemas.size());
  HornClauses clauses(static_cast<int32_t>(schemas.size()));
  for (size_t i = 0; i < schemas.size(); ++i) {
    AddSameValue(schemas[i], same[i]);
    clauses.Add(static_cast<int32_t>(i), same[i]);
  }
  const std::vector<bool> ends = clauses.Derive();
  const auto found = std::ranges::find(ends, false);
  if (found == ends.end()) return OkStatus();
  // From a schema that does not end, others that do not end lead into a circle.
  auto at = static_cast<size_t>(found - ends.begin());
  for (size_t step = 0; step < schemas.size(); ++step) {
    const auto next = std::ranges::find_if(
        same[at], [&](int32_t one) { return !ends[static_cast<size_t>(one)]; });
    at = static_cast<size_t>(*next);
  }
  return SchemaError(firsts[at]->at,
                     fmt::format("the reference {} leads back to itself",
                                 Shortened(firsts[at]->target, kMaxQuotedMember)));
}

Json SchemaOfPart(const Json& root, const Json& part) {
  Json schema = part;
  if (!schema.is_object()) return schema;
  const std::map<std::string, std::string> targets = {{"#", "#/$defs/root"}};
  Json definitions = Json::object();
  std::vector<std::string> waiting;
  const std::function<void(const Json&)> follow = [&](const Json& one) {
    if (one.is_object() && one.contains("$ref")) {
      waiting.push_back(one["$ref"].get<std::string>().substr(kDefinitions.size()));
    }
    VisitInner(one, follow);
  };
  Retarget(schema, targets);
  follow(schema);
  while (!waiting.empty()) {
    const std::string name = std::move(waiting.back());
    waiting.pop_back();
    if (definitions.contains(name)) continue;
    Json definition = name == "root" ? root : root["$defs"][name];
    if (name == "root") definition.erase("$defs");
    Retarget(definition, targets);
    follow(definition);
    definitions[name] = std::move(definition);
  }
  if (!definitions.empty()) schema["$defs"] = std::move(definitions);
  return schema;
}

Json SchemaOfTarget(const Json& reference) {
  const auto name = reference["$ref"].get<std::string>().substr(kDefinitions.size());
  return SchemaOfPart(reference, reference["$defs"][name]);
}

}  // namespace baton
