#include "router/text/chat_tools.h"

#include <nlohmann/json.hpp>

namespace baton::router {

std::string ToolName(const nlohmann::ordered_json& tool) {
  if (!tool.is_object()) return {};
  const auto function = tool.find("function");
  if (function == tool.end() || !function->is_object()) return {};
  const auto name = function->find("name");
  const bool has_name = name != function->end() && name->is_string();
  return has_name ? name->get<std::string>() : std::string();
}

}  // namespace baton::router
