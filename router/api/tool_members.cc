#include "router/api/tool_members.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "router/api/json_members.h"
#include "router/request_error.h"

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;
using Choice = ChatOutput::Choice;

// What tool_choice states. Not `offered`: the model must not know of the tools.
struct ToolChoice {
  bool offered = true;
  Choice choice = Choice::kAuto;
  std::string name;
};

StatusOr<ToolChoice> NamedTool(const Json& object, const std::string& parent) {
  ToolChoice out{.offered = true, .choice = Choice::kNamed, .name = {}};
  BATON_RETURN_IF_ERROR(ReadString(object, "name", out.name, parent));
  if (out.name.empty()) return Wrong(parent + "name", "the name of a tool");
  return out;
}

// OpenAI's forms: a word, or an object that names a function.
StatusOr<ToolChoice> ReadOpenAiChoice(ToolApi api, const Json& choice) {
  if (choice == "auto") return ToolChoice{};
  if (choice == "none") return ToolChoice{.offered = false, .choice = Choice::kAuto, .name = {}};
  if (choice == "required") {
    return ToolChoice{.offered = true, .choice = Choice::kRequired, .name = {}};
  }
  if (!choice.is_object()) {
    return Wrong("tool_choice",
                 "\"auto\", \"none\", \"required\" or an object that names a function");
  }
  if (choice.value("type", Json()) != "function") {
    return Unsupported("tool_choice.type", "is not supported; only \"function\" is");
  }
  if (api == ToolApi::kResponses) return NamedTool(choice, "tool_choice.");
  const Json* function = Member(choice, "function");
  if (function == nullptr || !function->is_object()) {
    return Wrong("tool_choice.function", "an object");
  }
  return NamedTool(*function, "tool_choice.function.");
}

StatusOr<ToolChoice> ReadMessagesChoice(const Json& choice, ChatOutput& output) {
  if (!choice.is_object()) return Wrong("tool_choice", "an object");
  BATON_RETURN_IF_ERROR(ReadBool(choice, "disable_parallel_tool_use", output.one_call));
  const Json type = choice.value("type", Json());
  if (type == "auto") return ToolChoice{};
  if (type == "none") return ToolChoice{.offered = false, .choice = Choice::kAuto, .name = {}};
  if (type == "any") return ToolChoice{.offered = true, .choice = Choice::kRequired, .name = {}};
  if (type == "tool") return NamedTool(choice, "tool_choice.");
  return Wrong("tool_choice.type", "\"auto\", \"any\", \"tool\" or \"none\"");
}

StatusOr<Json> ReadMessagesTool(const Json& tool, const std::string& name) {
  const Json* type = Member(tool, "type");
  if (type != nullptr && *type != "custom") {
    return Unsupported(name + ".type", "is not supported; only \"custom\" is");
  }
  Json function = Json::object();
  for (const auto& [from, to] : {std::pair("name", "name"),
                                 std::pair("description", "description"),
                                 std::pair("input_schema", "parameters"),
                                 std::pair("strict", "strict")}) {
    if (const Json* value = Member(tool, from); value != nullptr) function[to] = *value;
  }
  if (!function.contains("name") || !function["name"].is_string()) {
    return Wrong(name + ".name", "a string");
  }
  return Json{{"type", "function"}, {"function", std::move(function)}};
}

// The tool in the form of the chat API.
StatusOr<Json> ReadTool(ToolApi api, const Json& tool, const std::string& name) {
  if (!tool.is_object()) return Wrong(name, "an object");
  if (api == ToolApi::kMessages) return ReadMessagesTool(tool, name);
  if (api == ToolApi::kChat) return tool;
  if (tool.value("type", Json()) != "function") {
    return Unsupported(name + ".type", "is not supported; only \"function\" is");
  }
  Json function = tool;
  function.erase("type");
  return Json{{"type", "function"}, {"function", std::move(function)}};
}

bool IsNamed(const Json& tool, const std::string& name) {
  const auto function = tool.find("function");
  return function != tool.end() && function->is_object() && function->value("name", Json()) == name;
}

}  // namespace

Status ReadTools(ToolApi api, const Json& body, ChatInput& chat, ChatOutput& output) {
  ToolChoice choice;
  if (const Json* given = Member(body, "tool_choice"); given != nullptr) {
    BATON_ASSIGN_OR_RETURN(choice,
                           api == ToolApi::kMessages ? ReadMessagesChoice(*given, output)
                                                     : ReadOpenAiChoice(api, *given));
  }
  if (api != ToolApi::kMessages) {
    bool parallel = true;
    BATON_RETURN_IF_ERROR(ReadBool(body, "parallel_tool_calls", parallel));
    output.one_call = !parallel;
  }
  Json functions = Json::array();
  if (const Json* tools = Member(body, "tools"); tools != nullptr) {
    if (!tools->is_array()) return Wrong("tools", "an array");
    for (size_t i = 0; i < tools->size(); ++i) {
      BATON_ASSIGN_OR_RETURN(Json tool, ReadTool(api, (*tools)[i], fmt::format("tools[{}]", i)));
      functions.push_back(std::move(tool));
    }
  }
  if (choice.choice != Choice::kAuto && functions.empty()) {
    return InvalidMember("tool_choice", "tool_choice demands a call, but there are no tools");
  }
  const auto named = [&](const Json& tool) { return IsNamed(tool, choice.name); };
  if (choice.choice == Choice::kNamed && std::ranges::none_of(functions, named)) {
    return InvalidMember("tool_choice",
                         "tool_choice names \"{}\", which is not among the tools",
                         Shown(choice.name));
  }
  if (functions.empty() || !choice.offered) return OkStatus();
  chat.tools_json = functions.dump();
  output.calls = true;
  output.choice = choice.choice;
  output.named_tool = choice.name;
  return OkStatus();
}

}  // namespace baton::router
