#include "common/chat_format/tool_schemas.h"

#include <set>
#include <utility>

#include <nlohmann/json.hpp>

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

// References and combinations around the properties of a tool.
constexpr int kMaxDepth = 100;

const Json* Member(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

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
    const Json* properties = Member(schema, "properties");
    if (properties != nullptr && properties->is_object()) {
      for (const auto& [key, property] : properties->items()) Declare(key, types_.Of(property));
    }
    const Json* others = Member(schema, "additionalProperties");
    if (others != nullptr && others->is_object()) out_.others = {types_.Of(*others)};
    const Json* target = Member(schema, "$ref");
    if (target != nullptr && target->is_string()) {
      const Json* part = TargetOf(root_, target->get_ref<const std::string&>());
      if (part != nullptr) Add(*part, depth + 1);
    }
    for (const char* keyword : {"anyOf", "oneOf", "allOf"}) {
      const Json* branches = Member(schema, keyword);
      if (branches == nullptr || !branches->is_array()) continue;
      for (const Json& branch : *branches) Add(branch, depth + 1);
    }
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

ToolSchemas::ToolSchemas(const Json& tools) {
  if (!tools.is_array()) return;
  for (const Json& tool : tools) {
    const Json* function = Member(tool, "function");
    if (function == nullptr) function = &tool;
    const Json* name = Member(*function, "name");
    if (name == nullptr || !name->is_string()) continue;
    ToolParameters& parameters = tools_[name->get<std::string>()];
    const Json* schema = Member(*function, "parameters");
    if (schema != nullptr) parameters = ParameterReader(*schema).Read();
  }
}

ParameterType ToolSchemas::TypeOf(std::string_view tool, std::string_view parameter) const {
  const auto parameters = tools_.find(tool);
  if (parameters == tools_.end()) return ParameterType::kUnknown;
  const auto type = parameters->second.declared.find(parameter);
  return type == parameters->second.declared.end() ? parameters->second.others : type->second;
}

}  // namespace baton
