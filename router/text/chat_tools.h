#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace baton::router {

// The name of a tool in the form of OpenAI's chat API; empty if it has none.
std::string ToolName(const nlohmann::ordered_json& tool);

}  // namespace baton::router
