#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "common/chat_format/schema_types.h"

namespace baton {

// How a value that a model writes without quotes becomes JSON: by the types that its schema allows.
struct ParameterType {
  ValueTypes types = ValueTypes::kAll;

  // The text is the string, whatever it looks like. A string that may be null is one: models write
  // both without quotes, so a null cannot be told from the string "null".
  constexpr bool is_text() const {
    return types.Has(ValueTypes::kString) && types.Within(ValueTypes::kString | ValueTypes::kNull);
  }
  constexpr bool operator==(const ParameterType&) const = default;

  static const ParameterType kUnknown;
  static const ParameterType kString;
  static const ParameterType kOther;
};

inline constexpr ParameterType ParameterType::kUnknown = {ValueTypes::kAll};
inline constexpr ParameterType ParameterType::kString = {ValueTypes::kString};
inline constexpr ParameterType ParameterType::kOther = {
    ValueTypes::kAll.Without(ValueTypes::kString)};

struct ToolParameters {
  std::map<std::string, ParameterType, std::less<>> declared;
  ParameterType others;
  const nlohmann::ordered_json* schema = nullptr;  // of all parameters
};

// The names of the tools that a request offers, and the types of their parameters. Immutable.
class ToolSchemas final {
 public:
  ToolSchemas() = default;
  // `tools`: an array in the form of OpenAI's chat API. Ignores what has another form.
  explicit ToolSchemas(nlohmann::ordered_json tools);

  bool Has(std::string_view tool) const { return tools_.find(tool) != tools_.end(); }
  bool empty() const { return tools_.empty(); }
  ParameterType TypeOf(std::string_view tool, std::string_view parameter) const;
  // The schema of the parameters, which lives as long as this object; null: there is none.
  const nlohmann::ordered_json* SchemaOf(std::string_view tool) const;

 private:
  std::shared_ptr<const nlohmann::ordered_json> json_;
  std::map<std::string, ToolParameters, std::less<>> tools_;
};

}  // namespace baton
