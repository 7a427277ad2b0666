#include "common/chat_format/tool_schemas.h"

#include <nlohmann/json.hpp>

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

const Json* Member(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

ParameterType TypeOfSchema(const Json& schema) {
  const Json* type = Member(schema, "type");
  if (type == nullptr) return ParameterType::kUnknown;
  if (type->is_string()) return *type == "string" ? ParameterType::kString : ParameterType::kOther;
  if (!type->is_array()) return ParameterType::kUnknown;
  // ["string", "null"] is a string; of several other types the value decides.
  bool text = false;
  bool other = false;
  for (const Json& one : *type) {
    text |= one == "string";
    other |= one != "string" && one != "null";
  }
  if (text && other) return ParameterType::kUnknown;
  return text ? ParameterType::kString : ParameterType::kOther;
}

}  // namespace

ToolSchemas::ToolSchemas(const Json& tools) {
  if (!tools.is_array()) return;
  for (const Json& tool : tools) {
    const Json* function = Member(tool, "function");
    if (function == nullptr) function = &tool;
    const Json* name = Member(*function, "name");
    if (name == nullptr || !name->is_string()) continue;
    Types& types = tools_[name->get<std::string>()];
    const Json* parameters = Member(*function, "parameters");
    const Json* properties = parameters == nullptr ? nullptr : Member(*parameters, "properties");
    if (properties == nullptr || !properties->is_object()) continue;
    for (const auto& [key, schema] : properties->items()) types[key] = TypeOfSchema(schema);
  }
}

ParameterType ToolSchemas::TypeOf(std::string_view tool, std::string_view parameter) const {
  const auto types = tools_.find(tool);
  if (types == tools_.end()) return ParameterType::kUnknown;
  const auto type = types->second.find(parameter);
  return type == types->second.end() ? ParameterType::kUnknown : type->second;
}

}  // namespace baton
