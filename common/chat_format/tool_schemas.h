#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace baton {

// How a value that a model writes without quotes becomes JSON.
enum class ParameterType : uint8_t {
  kUnknown,  // JSON if it is a number, an object …; else a string
  kString,
  kOther,  // JSON if it is valid, else a string
};

// The names of the tools that a request offers, and the types of their parameters. Immutable.
class ToolSchemas final {
 public:
  ToolSchemas() = default;
  // `tools`: an array in the form of OpenAI's chat API. Ignores what has another form.
  explicit ToolSchemas(const nlohmann::ordered_json& tools);

  bool Has(std::string_view tool) const { return tools_.find(tool) != tools_.end(); }
  bool empty() const { return tools_.empty(); }
  ParameterType TypeOf(std::string_view tool, std::string_view parameter) const;

 private:
  using Types = std::map<std::string, ParameterType, std::less<>>;
  std::map<std::string, Types, std::less<>> tools_;
};

}  // namespace baton
