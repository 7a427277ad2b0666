#include "common/grammar/shared_schemas.h"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/grammar/schema_places.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kDefinitions = "$defs";

bool IsBounded(const Json& schema) {
  return std::ranges::any_of(
      std::initializer_list<const char*>{
          "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
      [&](const char* name) { return schema.contains(name); });
}

class Sharer {
 public:
  explicit Sharer(Json& root) : root_(root) {}

  void Share() {
    Count(root_);
    Json definitions = root_.value(kDefinitions, Json::object());
    root_.erase(kDefinitions);
    for (auto& [name, schema] : definitions.items()) VisitInner(schema, replace_);
    VisitInner(root_, replace_);
    for (const auto& [name, schema] : added_) definitions[name] = schema;
    if (!definitions.empty()) root_[kDefinitions] = std::move(definitions);
  }

 private:
  struct Known {
    int count = 0;
    std::string name;
  };

  void Count(Json& schema) {
    if (!schema.is_object()) return;
    if (IsBounded(schema)) ++known_[schema.dump()].count;
    VisitInner(schema, [&](Json& inner) { Count(inner); });
  }

  void Replace(Json& schema) {
    if (!schema.is_object()) return;
    VisitInner(schema, replace_);
    if (!IsBounded(schema)) return;
    const auto found = known_.find(schema.dump());
    if (found == known_.end() || found->second.count < 2) return;
    std::string& name = found->second.name;
    if (name.empty()) {
      name = fmt::format("shared-{}", ++names_);  // the others are numbers
      added_[name] = schema;
    }
    schema = {{"$ref", fmt::format("#/{}/{}", kDefinitions, name)}};
  }

  Json& root_;
  std::map<std::string, Known> known_;  // by the text of the schema
  std::map<std::string, Json> added_;   // definitions by name
  int names_ = 0;
  const std::function<void(Json&)> replace_ = [this](Json& schema) { Replace(schema); };
};

}  // namespace

void ShareEqualSchemas(Json& root) {
  if (root.is_object() && !root.contains("$ref")) Sharer(root).Share();
}

}  // namespace baton
