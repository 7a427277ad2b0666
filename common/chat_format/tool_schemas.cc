#include "common/chat_format/tool_schemas.h"

#include <set>
#include <utility>

#include <nlohmann/json.hpp>

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

// References and combinations around the properties of a tool.
constexpr int kMaxDepth = 100;

// Finds the parameters that a schema declares, itself or in the schemas that it combines or refers
// to. Visits each once. A parameter that several of them declare has the types of all.
class ParameterReader {
 public:
  explicit ParameterReader(const Json& root) : root_(root), types_(root, Typeless::kImplied) {}

  ToolParameters Read() {
    Add(root_, 0);
    return std::move(out_);
  }

 private:
  void Add(const Json& schema, int depth) {
    if (depth > kMaxDepth || !visited_.insert(&schema).second) return;
    const Json* properties = MemberOf(schema, "properties");
    if (properties != nullptr && properties->is_object()) {
      for (const auto& [key, property] : properties->items()) Declare(key, types_.Of(property));
    }
    const Json* others = MemberOf(schema, "additionalProperties");
    if (others != nullptr && others->is_object()) out_.others = {types_.Of(*others)};
    for (const Json* part : PartsOf(root_, schema)) Add(*part, depth + 1);
  }

  void Declare(const std::string& key, ValueTypes types) {
    const auto [known, added] = out_.declared.try_emplace(key, ParameterType{types});
    if (!added) known->second.types = known->second.types | types;
  }

  const Json& root_;
  SchemaTypes types_;
  std::set<const Json*> visited_;
  ToolParameters out_;
};

}  // namespace

ToolSchemas::ToolSchemas(Json tools) : json_(std::make_shared<const Json>(std::move(tools))) {
  if (!json_->is_array()) return;
  for (const Json& tool : *json_) {
    const Json* function = MemberOf(tool, "function");
    if (function == nullptr) function = &tool;
    const Json* name = MemberOf(*function, "name");
    if (name == nullptr || !name->is_string()) continue;
    ToolParameters& parameters = tools_[name->get<std::string>()];
    const Json* schema = MemberOf(*function, "parameters");
    if (schema == nullptr) continue;
    parameters = ParameterReader(*schema).Read();
    parameters.schema = schema;
  }
}

ParameterType ToolSchemas::TypeOf(std::string_view tool, std::string_view parameter) const {
  const auto parameters = tools_.find(tool);
  if (parameters == tools_.end()) return ParameterType::kUnknown;
  const auto type = parameters->second.declared.find(parameter);
  return type == parameters->second.declared.end() ? parameters->second.others : type->second;
}

const Json* ToolSchemas::SchemaOf(std::string_view tool) const {
  const auto parameters = tools_.find(tool);
  return parameters == tools_.end() ? nullptr : parameters->second.schema;
}

}  // namespace baton
