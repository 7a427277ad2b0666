#include "common/chat_format/nested_types.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

NestedTypes::NestedTypes(const Json* root) : root_(root) {
  if (root != nullptr) types_.emplace(*root, Typeless::kImplied);
}

NestedTypes::Schemas NestedTypes::Arguments() const {
  return root_ == nullptr ? Schemas() : Schemas{root_};
}

NestedTypes::Schemas NestedTypes::MemberOf(const Schemas& object, std::string_view key) {
  Schemas declared;
  Schemas others;
  for (const Json* schema : Expanded(object)) {
    const Json* properties = baton::MemberOf(*schema, "properties");
    if (properties != nullptr && properties->is_object()) {
      const Members& members = MembersOf(*properties);
      const auto member = members.find(key);
      if (member != members.end()) declared.push_back(member->second);
    }
    const Json* other = baton::MemberOf(*schema, "additionalProperties");
    if (other != nullptr && other->is_object()) others.push_back(other);
  }
  return declared.empty() ? others : declared;
}

NestedTypes::Schemas NestedTypes::ItemOf(const Schemas& array) const {
  Schemas items;
  for (const Json* schema : Expanded(array)) {
    const Json* item = baton::MemberOf(*schema, "items");
    if (item != nullptr && item->is_object()) items.push_back(item);
    const Json* first = baton::MemberOf(*schema, "prefixItems");
    if (first == nullptr || !first->is_array()) continue;
    for (const Json& one : *first) items.push_back(&one);
  }
  return items;
}

ParameterType NestedTypes::TypeOf(const Schemas& schemas) {
  if (schemas.empty()) return ParameterType::kUnknown;
  ParameterType type = {ValueTypes::kNone};
  for (const Json* schema : schemas) {
    const auto [known, added] = known_.try_emplace(schema);
    if (added) known->second = types_->Of(*schema);
    type.types = type.types | known->second;
  }
  return type;
}

NestedTypes::Schemas NestedTypes::Expanded(Schemas schemas) const {
  for (size_t i = 0; i < schemas.size(); ++i) {
    for (const Json* part : PartsOf(*root_, *schemas[i])) {
      if (schemas.size() >= kMaxSchemas) return schemas;
      if (std::ranges::find(schemas, part) == schemas.end()) schemas.push_back(part);
    }
  }
  return schemas;
}

const NestedTypes::Members& NestedTypes::MembersOf(const Json& properties) {
  const auto [known, added] = members_.try_emplace(&properties);
  if (!added) return known->second;
  for (auto member = properties.begin(); member != properties.end(); ++member) {
    known->second.emplace(member.key(), &member.value());
  }
  return known->second;
}

}  // namespace baton
