#include "common/chat_format/schema_types.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

#include <nlohmann/json.hpp>

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

// References and schemas inside of each other.
constexpr int kMaxDepth = 100;

constexpr std::string_view kObject[] = {"properties",
                                        "required",
                                        "additionalProperties",
                                        "patternProperties",
                                        "minProperties",
                                        "maxProperties"};
constexpr std::string_view kArray[] = {"items", "prefixItems", "minItems", "maxItems"};
constexpr std::string_view kString[] = {"minLength", "maxLength", "pattern", "format"};
constexpr std::string_view kNumber[] = {
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"};
template <class List>
bool Has(const List& list, std::string_view name) {
  return std::ranges::find(list, name) != std::end(list);
}

ValueTypes TypesOfName(const Json& name) {
  if (name == "null") return ValueTypes::kNull;
  if (name == "boolean") return ValueTypes::kBoolean;
  if (name == "integer") return ValueTypes::kInteger;
  if (name == "number") return ValueTypes::kNumber;
  if (name == "string") return ValueTypes::kString;
  if (name == "array") return ValueTypes::kArray;
  if (name == "object") return ValueTypes::kObject;
  return ValueTypes::kAll;
}

ValueTypes TypesOfNames(const Json& names) {
  if (!names.is_array()) return TypesOfName(names);
  ValueTypes types;
  for (const Json& name : names) types = types | TypesOfName(name);
  return types;
}

// The type that the keywords of a schema without a type are about; all if there is none, or
// several.
ValueTypes ImpliedTypes(const Json& schema) {
  std::string_view implied;
  for (const auto& [name, value] : schema.items()) {
    const std::string_view type = TypeOfKeyword(name);
    if (type.empty() || type == implied) continue;
    if (!implied.empty()) return ValueTypes::kAll;
    implied = type;
  }
  return implied.empty() ? ValueTypes::kAll : TypesOfName(Json(implied));
}

// A step of a JSON pointer (RFC 6901).
const Json* Step(const Json& from, std::string_view step) {
  if (from.is_array()) {
    size_t index = 0;
    const auto [end, error] = std::from_chars(step.data(), step.data() + step.size(), index);
    const bool whole = error == std::errc() && end == step.data() + step.size();
    return whole && index < from.size() ? &from[index] : nullptr;
  }
  std::string name;
  for (size_t i = 0; i < step.size(); ++i) {
    const bool escape = step[i] == '~' && i + 1 < step.size();
    name += escape ? (step[++i] == '0' ? '~' : '/') : step[i];
  }
  return MemberOf(from, name.c_str());
}

}  // namespace

const Json* MemberOf(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

std::string_view TypeOfKeyword(std::string_view name) {
  if (Has(kObject, name)) return "object";
  if (Has(kArray, name)) return "array";
  if (Has(kString, name)) return "string";
  return Has(kNumber, name) ? "number" : "";
}

ValueTypes TypesOfNumber(double number) {
  const bool whole = number == std::floor(number);
  return whole ? ValueTypes::kInteger : ValueTypes::kNumber.Without(ValueTypes::kInteger);
}

ValueTypes TypesOfValue(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return ValueTypes::kNull;
    case Json::value_t::boolean:
      return ValueTypes::kBoolean;
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return ValueTypes::kInteger;
    case Json::value_t::number_float:
      return TypesOfNumber(value.get<double>());
    case Json::value_t::string:
      return ValueTypes::kString;
    case Json::value_t::array:
      return ValueTypes::kArray;
    case Json::value_t::object:
      return ValueTypes::kObject;
    default:
      return ValueTypes::kNone;
  }
}

const Json* TargetOf(const Json& root, std::string_view reference) {
  if (!reference.starts_with('#')) return nullptr;
  reference.remove_prefix(1);
  const Json* at = &root;
  while (at != nullptr && reference.starts_with('/')) {
    reference.remove_prefix(1);
    const size_t end = std::min(reference.find('/'), reference.size());
    at = Step(*at, reference.substr(0, end));
    reference.remove_prefix(end);
  }
  return reference.empty() ? at : nullptr;
}

std::vector<const Json*> PartsOf(const Json& root, const Json& schema) {
  std::vector<const Json*> parts;
  const Json* reference = MemberOf(schema, "$ref");
  if (reference != nullptr && reference->is_string()) {
    const Json* target = TargetOf(root, reference->get_ref<const std::string&>());
    if (target != nullptr) parts.push_back(target);
  }
  for (const char* keyword : {"anyOf", "oneOf", "allOf"}) {
    const Json* branches = MemberOf(schema, keyword);
    if (branches == nullptr || !branches->is_array()) continue;
    for (const Json& branch : *branches) parts.push_back(&branch);
  }
  return parts;
}

ValueTypes SchemaTypes::Of(const Json& schema, int depth) {
  if (schema == false) return ValueTypes::kNone;
  if (!schema.is_object() || depth > kMaxDepth) return ValueTypes::kAll;
  // Listed values need no type: keywords beside them let those of other types pass.
  if (typeless_ == Typeless::kImplied && ListsValues(schema, depth)) {
    if (anything_ == nullptr) anything_ = std::make_unique<SchemaTypes>(root_);
    return anything_->Of(schema, depth);
  }
  ValueTypes types = ValueTypes::kAll;
  if (const Json* names = MemberOf(schema, "type")) {
    types = types & TypesOfNames(*names);
  } else if (typeless_ == Typeless::kImplied) {
    types = types & ImpliedTypes(schema);
  }
  if (const Json* value = MemberOf(schema, "const")) types = types & TypesOfValue(*value);
  if (const Json* values = MemberOf(schema, "enum"); values != nullptr && values->is_array()) {
    ValueTypes some;
    for (const Json& value : *values) some = some | TypesOfValue(value);
    types = types & some;
  }
  for (const char* keyword : {"anyOf", "oneOf"}) {
    if (const Json* branches = MemberOf(schema, keyword)) {
      types = types & OfBranches(*branches, /*all=*/false, depth);
    }
  }
  if (const Json* branches = MemberOf(schema, "allOf")) {
    types = types & OfBranches(*branches, /*all=*/true, depth);
  }
  if (const Json* target = MemberOf(schema, "$ref"); target != nullptr && target->is_string()) {
    types = types & OfTarget(target->get_ref<const std::string&>(), depth);
  }
  return types;
}

// Whether const or enum of the schema, or of one that its values match, too, lists all values.
bool SchemaTypes::ListsValues(const Json& schema, int depth) const {
  if (!schema.is_object() || depth > kMaxDepth) return false;
  if (schema.contains("const") || schema.contains("enum")) return true;
  const Json* branches = MemberOf(schema, "allOf");
  return branches != nullptr && branches->is_array() &&
         std::ranges::any_of(*branches,
                             [&](const Json& branch) { return ListsValues(branch, depth + 1); });
}

ValueTypes SchemaTypes::OfBranches(const Json& branches, bool all, int depth) {
  if (!branches.is_array()) return ValueTypes::kAll;
  ValueTypes types = all ? ValueTypes::kAll : ValueTypes::kNone;
  for (const Json& branch : branches) {
    const ValueTypes of_branch = Of(branch, depth + 1);
    types = all ? types & of_branch : types | of_branch;
  }
  return types;
}

// A reference that leads back to itself adds no type.
ValueTypes SchemaTypes::OfTarget(const std::string& reference, int depth) {
  const auto [known, added] = targets_.try_emplace(reference, ValueTypes::kNone);
  if (!added) return known->second;
  const Json* target = TargetOf(root_, reference);
  const ValueTypes types = target == nullptr ? ValueTypes::kAll : Of(*target, depth + 1);
  known->second = types;
  return types;
}

}  // namespace baton
