#include "router/api/tool_members.h"

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "router/api/json_members.h"
#include "router/request_error.h"
#include "router/text/chat_tools.h"

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;
using Choice = ChatOutput::Choice;

// What tool_choice states.
struct ToolChoice {
  bool offered = true;  // false: the model must not know of the tools
  Choice choice = Choice::kAuto;
  // The only tools that may be called, with the member that names each; empty: all.
  std::map<std::string, std::string> allowed = {};
};

StatusOr<std::string> ReadName(const Json& object, const std::string& parent) {
  std::string name;
  BATON_RETURN_IF_ERROR(ReadString(object, "name", name, parent));
  if (name.empty()) return Wrong(parent + "name", "the name of a tool");
  return name;
}

// OpenAI's forms of a function: {"name"} of responses, {"function": {"name"}} of chats.
StatusOr<std::string> ReadFunction(ToolApi api, const Json& object, const std::string& parent) {
  if (api == ToolApi::kResponses) return ReadName(object, parent);
  const Json* function = Member(object, "function");
  if (function == nullptr || !function->is_object()) return Wrong(parent + "function", "an object");
  return ReadName(*function, parent + "function.");
}

ToolChoice OnlyTool(const std::string& name) {
  return {.choice = Choice::kNamed, .allowed = {{name, "tool_choice"}}};
}

// Reads {"mode": "auto" or "required", "tools": […]}, whose members have their names behind
// `parent`.
StatusOr<ToolChoice> ReadAllowed(ToolApi api, const Json& allowed, const std::string& parent) {
  const Json mode = allowed.value("mode", Json());
  if (mode != "auto" && mode != "required") {
    return Wrong(parent + "mode", "\"auto\" or \"required\"");
  }
  const Json* tools = Member(allowed, "tools");
  if (tools == nullptr || !tools->is_array() || tools->empty()) {
    return Wrong(parent + "tools", "an array of at least one tool");
  }
  ToolChoice out{.choice = mode == "auto" ? Choice::kAuto : Choice::kRequired};
  for (size_t i = 0; i < tools->size(); ++i) {
    const Json& tool = (*tools)[i];
    const std::string member = fmt::format("{}tools[{}]", parent, i);
    if (!tool.is_object()) return Wrong(member, "an object");
    if (tool.value("type", Json()) != "function") {
      return Unsupported(member + ".type", "is not supported; only \"function\" is");
    }
    BATON_ASSIGN_OR_RETURN(const std::string name, ReadFunction(api, tool, member + "."));
    const auto [first, is_new] = out.allowed.try_emplace(name, member);
    if (is_new) continue;
    return InvalidMember(
        member, "{} names \"{}\", which {} names, too", member, Shown(name), first->second);
  }
  return out;
}

// OpenAI's forms: a word, or an object that names the only function or the allowed ones.
StatusOr<ToolChoice> ReadOpenAiChoice(ToolApi api, const Json& choice) {
  if (choice == "auto") return ToolChoice{};
  if (choice == "none") return ToolChoice{.offered = false};
  if (choice == "required") return ToolChoice{.choice = Choice::kRequired};
  if (!choice.is_object()) {
    return Wrong("tool_choice",
                 "\"auto\", \"none\", \"required\" or an object that names functions");
  }
  const Json type = choice.value("type", Json());
  if (type == "allowed_tools") {
    if (api == ToolApi::kResponses) return ReadAllowed(api, choice, "tool_choice.");
    const Json* allowed = Member(choice, "allowed_tools");
    if (allowed == nullptr || !allowed->is_object()) {
      return Wrong("tool_choice.allowed_tools", "an object");
    }
    return ReadAllowed(api, *allowed, "tool_choice.allowed_tools.");
  }
  if (type != "function") {
    return Unsupported("tool_choice.type",
                       "is not supported; only \"function\" and \"allowed_tools\" are");
  }
  BATON_ASSIGN_OR_RETURN(const std::string name, ReadFunction(api, choice, "tool_choice."));
  return OnlyTool(name);
}

StatusOr<ToolChoice> ReadMessagesChoice(const Json& choice, ChatOutput& output) {
  if (!choice.is_object()) return Wrong("tool_choice", "an object");
  BATON_RETURN_IF_ERROR(ReadBool(choice, "disable_parallel_tool_use", output.one_call));
  const Json type = choice.value("type", Json());
  if (type == "auto") return ToolChoice{};
  if (type == "none") return ToolChoice{.offered = false};
  if (type == "any") return ToolChoice{.choice = Choice::kRequired};
  if (type != "tool") {
    return Wrong("tool_choice.type", "\"auto\", \"any\", \"tool\" or \"none\"");
  }
  BATON_ASSIGN_OR_RETURN(const std::string name, ReadName(choice, "tool_choice."));
  return OnlyTool(name);
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

// Refuses a choice of tools that the request does not offer. `tools`: in the form of the chat API.
Status CheckAllowed(const ToolChoice& choice, const Json& tools) {
  std::set<std::string> offered;
  for (const Json& tool : tools) offered.insert(ToolName(tool));
  for (const auto& [name, member] : choice.allowed) {
    if (offered.contains(name)) continue;
    return InvalidMember(
        member, "{} names \"{}\", which is not among the tools", member, Shown(name));
  }
  return OkStatus();
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
  BATON_RETURN_IF_ERROR(CheckAllowed(choice, functions));
  if (functions.empty() || !choice.offered) return OkStatus();
  chat.tools_json = functions.dump();
  output.calls = true;
  output.choice = choice.choice;
  for (const auto& [name, member] : choice.allowed) output.allowed_tools.insert(name);
  return OkStatus();
}

}  // namespace baton::router
