#pragma once

#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/chat_format/schema_types.h"
#include "common/chat_format/tool_schemas.h"

namespace baton {

// The types of all values in the arguments of a call, by the schema of the tool's parameters. Reads
// only the parts of the schema to which the call leads, each once. Not thread-safe.
class NestedTypes final {
 public:
  // The schemas that describe one value, at most kMaxSchemas. Empty: nothing is known of the value.
  using Schemas = std::vector<const nlohmann::ordered_json*>;
  static constexpr size_t kMaxSchemas = 32;

  // `root`: the whole schema, which outlives the object; null: nothing is known.
  explicit NestedTypes(const nlohmann::ordered_json* root);

  Schemas Arguments() const;
  Schemas MemberOf(const Schemas& object, std::string_view key);
  Schemas ItemOf(const Schemas& array) const;  // of any item
  // Of a value: what any of `schemas` allows; kUnknown when there are none.
  ParameterType TypeOf(const Schemas& schemas);

 private:
  using Members = std::map<std::string_view, const nlohmann::ordered_json*>;

  // With the schemas that they refer to or combine.
  Schemas Expanded(Schemas schemas) const;
  const Members& MembersOf(const nlohmann::ordered_json& properties);

  const nlohmann::ordered_json* root_;
  std::optional<SchemaTypes> types_;
  std::map<const nlohmann::ordered_json*, ValueTypes> known_;  // by schema
  std::map<const nlohmann::ordered_json*, Members> members_;   // by the object of properties
};

}  // namespace baton
