#include "router/api/responses_request.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "router/api/chat_members.h"
#include "router/api/grammar_members.h"
#include "router/api/json_members.h"
#include "router/api/tool_members.h"
#include "router/api/turns.h"
#include "router/request_error.h"

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;

// Refuses `name` unless it is absent, null or `harmless`.
Status Refuse(const Json& body, const char* name, const Json& harmless, std::string_view why) {
  const Json* value = Member(body, name);
  if (value == nullptr || *value == harmless) return OkStatus();
  return Unsupported(name, why);
}

Status CheckMembers(const Json& body) {
  BATON_RETURN_IF_ERROR(CheckKnown(body,
                                   "",
                                   {"background",
                                    "chat_template_kwargs",
                                    "conversation",
                                    "ignore_eos",
                                    "include",
                                    "input",
                                    "instructions",
                                    "max_output_tokens",
                                    "max_tool_calls",
                                    "metadata",
                                    "model",
                                    "parallel_tool_calls",
                                    "previous_response_id",
                                    "prompt",
                                    "prompt_cache_key",
                                    "prompt_cache_retention",
                                    "reasoning",
                                    "safety_identifier",
                                    "service_tier",
                                    "stop",
                                    "store",
                                    "stream",
                                    "stream_options",
                                    "text",
                                    "tool_choice",
                                    "tools",
                                    "top_logprobs",
                                    "truncation",
                                    "user"},
                                   SharedMembers()));
  constexpr std::string_view kNoState =
      "is not supported: this server keeps no responses; send the whole input";
  BATON_RETURN_IF_ERROR(Refuse(body, "previous_response_id", nullptr, kNoState));
  BATON_RETURN_IF_ERROR(Refuse(body, "conversation", nullptr, kNoState));
  BATON_RETURN_IF_ERROR(Refuse(body, "background", false, kNoState));
  BATON_RETURN_IF_ERROR(Refuse(body, "prompt", nullptr, "is not supported"));
  BATON_RETURN_IF_ERROR(Refuse(body, "max_tool_calls", nullptr, "is not supported"));
  // "auto" drops items when the input does not fit. Here such an input is refused in any case.
  const Json* truncation = Member(body, "truncation");
  if (truncation != nullptr && *truncation != "disabled" && *truncation != "auto") {
    return Wrong("truncation", "\"auto\" or \"disabled\"");
  }
  const Json* text = Member(body, "text");
  if (text == nullptr) return OkStatus();
  if (!text->is_object()) return Wrong("text", "an object");
  return CheckKnown(*text, "text.", {"format", "verbosity"});
}

// Reasoning is always included in plain text; there is nothing encrypted to include. Logprobs are
// included when `include` or top_logprobs says so.
Status ReadIncluded(const Json& body, ApiRequest& out) {
  std::optional<int32_t>& top = out.generation.top_logprobs;
  BATON_RETURN_IF_ERROR(ReadInt(body, "top_logprobs", top));
  std::vector<std::string> included;
  BATON_RETURN_IF_ERROR(ReadStrings(body, "include", included));
  for (const std::string& one : included) {
    if (one == "message.output_text.logprobs") {
      top = top.value_or(0);
    } else if (one != "reasoning.encrypted_content") {
      return Unsupported("include",
                         "is not supported, apart from message.output_text.logprobs and "
                         "reasoning.encrypted_content");
    }
  }
  out.blocks.logprobs = top.has_value();
  return OkStatus();
}

// The text of reasoning that the client sends back.
std::string ReasoningText(const Json& item) {
  std::string text;
  for (const char* name : {"content", "summary"}) {
    const Json* parts = Member(item, name);
    if (parts == nullptr || !parts->is_array() || !text.empty()) continue;
    for (const Json& part : *parts) {
      if (part.is_object() && part.contains("text") && part["text"].is_string()) {
        text += part["text"].get<std::string>();
      }
    }
  }
  return text;
}

Status AddMessage(const Json& item, const std::string& name, Turns& turns) {
  std::string role;
  BATON_RETURN_IF_ERROR(ReadString(item, "role", role, name + "."));
  constexpr std::string_view kRoles[] = {"user", "assistant", "system", "developer"};
  if (std::ranges::count(kRoles, role) == 0) {
    return Wrong(name + ".role", "\"user\", \"assistant\", \"system\" or \"developer\"");
  }
  const Json* content = Member(item, "content");
  if (content == nullptr) return Wrong(name + ".content", "a string or an array of text parts");
  BATON_ASSIGN_OR_RETURN(std::string text, ReadContent(*content, name + ".content"));
  turns.AddText(role, std::move(text));
  return OkStatus();
}

Status AddItem(const Json& item, const std::string& name, Turns& turns) {
  if (!item.is_object()) return Wrong(name, "an object");
  std::string type = "message";
  BATON_RETURN_IF_ERROR(ReadString(item, "type", type, name + "."));
  if (type == "message") return AddMessage(item, name, turns);
  if (type == "reasoning") {
    turns.AddReasoning(ReasoningText(item));
    return OkStatus();
  }
  std::string call_id;
  BATON_RETURN_IF_ERROR(ReadString(item, "call_id", call_id, name + "."));
  if (type == "function_call") {
    std::string tool;
    std::string arguments;
    BATON_RETURN_IF_ERROR(ReadString(item, "name", tool, name + "."));
    BATON_RETURN_IF_ERROR(ReadString(item, "arguments", arguments, name + "."));
    if (tool.empty()) return Wrong(name + ".name", "a string");
    turns.AddCall(call_id, tool, arguments);
    return OkStatus();
  }
  if (type == "function_call_output") {
    const Json* output = Member(item, "output");
    if (output == nullptr) return Wrong(name + ".output", "a string or an array of text parts");
    BATON_ASSIGN_OR_RETURN(std::string text, ReadContent(*output, name + ".output"));
    turns.AddResult(call_id, std::move(text));
    return OkStatus();
  }
  return Unsupported(name + ".type",
                     "is not supported; message, reasoning, function_call and "
                     "function_call_output are");
}

Status ReadInput(const Json& body, ChatInput& chat) {
  Turns turns;
  std::string instructions;
  BATON_RETURN_IF_ERROR(ReadString(body, "instructions", instructions));
  if (!instructions.empty()) turns.AddText("system", std::move(instructions));
  const Json* input = Member(body, "input");
  if (input == nullptr || (!input->is_string() && !input->is_array())) {
    return Wrong("input", "a string or an array of items");
  }
  if (input->is_string()) {
    turns.AddText("user", input->get<std::string>());
  } else {
    for (size_t i = 0; i < input->size(); ++i) {
      BATON_RETURN_IF_ERROR(AddItem((*input)[i], fmt::format("input[{}]", i), turns));
    }
  }
  chat.turns = turns.Take();
  if (chat.turns.empty()) return InvalidMember("input", "input is empty");
  return OkStatus();
}

Status ReadReasoning(const Json& body, ChatInput& chat) {
  if (const Json* given = Member(body, "chat_template_kwargs"); given != nullptr) {
    if (!given->is_object()) return Wrong("chat_template_kwargs", "an object");
    chat.arguments_json = given->dump();
  }
  const Json* reasoning = Member(body, "reasoning");
  if (reasoning == nullptr) return OkStatus();
  if (!reasoning->is_object()) return Wrong("reasoning", "an object");
  // A summary is not made; the reasoning itself is in the answer.
  BATON_RETURN_IF_ERROR(
      CheckKnown(*reasoning, "reasoning.", {"effort", "summary", "generate_summary"}));
  return ReadString(*reasoning, "effort", chat.reasoning_effort, "reasoning.");
}

}  // namespace

StatusOr<ApiRequest> ReadResponsesRequest(const Json& body) {
  ApiRequest out;
  GenerationRequest& generation = out.generation;
  generation.names.messages = "input";
  generation.names.one_message_a_turn = false;
  generation.names.template_arguments = "chat_template_kwargs";
  generation.names.reasoning_effort = "reasoning.effort";
  generation.names.max_tokens = "max_output_tokens";
  generation.names.sampling = "";
  generation.samples = 1;
  generation.skip_special_tokens = true;
  BATON_RETURN_IF_ERROR(CheckMembers(body));
  BATON_RETURN_IF_ERROR(ReadString(body, "model", generation.model));
  ChatInput chat;
  BATON_RETURN_IF_ERROR(ReadInput(body, chat));
  BATON_RETURN_IF_ERROR(
      ReadTools(ToolApi::kResponses, body, chat, generation.chat_output.emplace()));
  if (const Json* text = Member(body, "text"); text != nullptr) {
    if (const Json* format = Member(*text, "format"); format != nullptr) {
      BATON_RETURN_IF_ERROR(ReadTextFormat("text.format", *format, generation.output_grammar));
    }
  }
  BATON_RETURN_IF_ERROR(ReadReasoning(body, chat));
  BATON_RETURN_IF_ERROR(ReadIncluded(body, out));
  BATON_RETURN_IF_ERROR(ReadSampling(body, generation.sampling));
  BATON_RETURN_IF_ERROR(ReadStrings(body, "stop", generation.stop));
  BATON_RETURN_IF_ERROR(ReadBool(body, "ignore_eos", generation.ignore_eos));
  BATON_RETURN_IF_ERROR(ReadInt(body, "max_output_tokens", generation.max_tokens));
  BATON_RETURN_IF_ERROR(ReadPassed(body, generation));
  BATON_RETURN_IF_ERROR(ReadBool(body, "stream", out.stream));
  out.inputs.emplace_back(std::move(chat));
  return out;
}

}  // namespace baton::router
