#pragma once

#include <cstdint>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"
#include "router/generation.h"

namespace baton::router {

// The APIs differ in the form of tools and of tool_choice.
enum class ToolApi : uint8_t {
  kChat,       // {"type": "function", "function": {"name", "parameters", …}}
  kResponses,  // {"type": "function", "name", "parameters", …}
  kMessages,   // {"name", "input_schema", …}; tool_choice is an object {"type": "any"}
};

// Reads `tools`, `tool_choice` and `parallel_tool_calls`. `chat` receives the tools in the form of
// the chat API, which chat templates expect. Errors: InvalidArgument naming the member at fault.
Status ReadTools(ToolApi api,
                 const nlohmann::ordered_json& body,
                 ChatInput& chat,
                 ChatOutput& output);

}  // namespace baton::router
