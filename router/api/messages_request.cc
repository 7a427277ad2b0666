#include "router/api/messages_request.h"

#include <optional>
#include <string>
#include <utility>

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

// The text of a tool's result: a string or text blocks; nothing counts as empty.
StatusOr<std::string> ResultText(const Json& block, const std::string& name) {
  const Json* content = Member(block, "content");
  if (content == nullptr) return std::string();
  return ReadContent(*content, name + ".content");
}

Status AddBlock(const Json& block, const std::string& role, const std::string& name, Turns& turns) {
  if (!block.is_object()) return Wrong(name, "an object");
  std::string type;
  BATON_RETURN_IF_ERROR(ReadString(block, "type", type, name + "."));
  if (type == "text") {
    std::string text;
    BATON_RETURN_IF_ERROR(ReadString(block, "text", text, name + "."));
    turns.AddText(role, std::move(text));
    return OkStatus();
  }
  if (type == "thinking") {
    std::string text;
    BATON_RETURN_IF_ERROR(ReadString(block, "thinking", text, name + "."));
    turns.AddReasoning(text);
    return OkStatus();
  }
  if (type == "tool_use") {
    std::string id;
    std::string tool;
    BATON_RETURN_IF_ERROR(ReadString(block, "id", id, name + "."));
    BATON_RETURN_IF_ERROR(ReadString(block, "name", tool, name + "."));
    if (tool.empty()) return Wrong(name + ".name", "a string");
    const Json* input = Member(block, "input");
    turns.AddCall(id, tool, input == nullptr ? "{}" : input->dump());
    return OkStatus();
  }
  if (type == "tool_result") {
    std::string id;
    BATON_RETURN_IF_ERROR(ReadString(block, "tool_use_id", id, name + "."));
    BATON_ASSIGN_OR_RETURN(std::string text, ResultText(block, name));
    turns.AddResult(id, std::move(text));
    return OkStatus();
  }
  return Unsupported(name + ".type",
                     "is not supported; text, thinking, tool_use and tool_result are");
}

Status AddMessage(const Json& message, const std::string& name, Turns& turns) {
  if (!message.is_object()) return Wrong(name, "an object");
  std::string role;
  BATON_RETURN_IF_ERROR(ReadString(message, "role", role, name + "."));
  if (role != "user" && role != "assistant" && role != "system") {
    return Wrong(name + ".role", "\"user\" or \"assistant\"");
  }
  const Json* content = Member(message, "content");
  if (content != nullptr && content->is_string()) {
    turns.AddText(role, content->get<std::string>());
    return OkStatus();
  }
  if (content == nullptr || !content->is_array()) {
    return Wrong(name + ".content", "a string or an array of blocks");
  }
  for (size_t i = 0; i < content->size(); ++i) {
    BATON_RETURN_IF_ERROR(
        AddBlock((*content)[i], role, fmt::format("{}.content[{}]", name, i), turns));
  }
  return OkStatus();
}

Status ReadMessages(const Json& body, ChatInput& chat) {
  Turns turns;
  if (const Json* system = Member(body, "system"); system != nullptr) {
    BATON_ASSIGN_OR_RETURN(std::string text, ReadContent(*system, "system"));
    if (!text.empty()) turns.AddText("system", std::move(text));
  }
  const Json* messages = Member(body, "messages");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    return Wrong("messages", "an array of at least one message");
  }
  for (size_t i = 0; i < messages->size(); ++i) {
    BATON_RETURN_IF_ERROR(AddMessage((*messages)[i], fmt::format("messages[{}]", i), turns));
  }
  chat.turns = turns.Take();
  // The answer continues a last turn of the assistant.
  chat.continue_final_message = !chat.turns.empty() && chat.turns.back().role == "assistant";
  return OkStatus();
}

// Thinking is a matter of the template; its budget is one of the template's variables.
Status ReadThinking(const Json& body, ChatInput& chat, ApiRequest& out) {
  const Json* thinking = Member(body, "thinking");
  if (thinking == nullptr) return OkStatus();
  if (!thinking->is_object()) return Wrong("thinking", "an object");
  const Json type = thinking->value("type", Json());
  if (type != "enabled" && type != "disabled" && type != "adaptive") {
    return Wrong("thinking.type", "\"enabled\", \"adaptive\" or \"disabled\"");
  }
  std::optional<int64_t> budget;
  BATON_RETURN_IF_ERROR(ReadInt(*thinking, "budget_tokens", budget));
  Json arguments = Json::object();
  if (type == "adaptive") {
    arguments["enable_thinking"] = true;  // if the template reads it: the model may think
  } else {
    chat.thinking = type == "enabled";
  }
  if (budget.has_value()) arguments["thinking_budget"] = *budget;
  chat.arguments_json = arguments.dump();
  out.include_reasoning = type != "disabled";
  return OkStatus();
}

// Anthropic's tool runner goes on without a thread after this error (MessagesError).
Status RefuseThread(const Json& body) {
  if (Member(body, "thread") == nullptr) return OkStatus();
  return WithReason(
      InvalidMember("thread",
                    "thread is not supported: this server keeps no messages; leave thread out and "
                    "send the whole conversation"),
      reason::kThreadUnsupported);
}

Status ReadLength(const Json& body, GenerationRequest& out) {
  BATON_RETURN_IF_ERROR(ReadInt(body, "max_tokens", out.max_tokens));
  if (out.max_tokens.has_value()) return OkStatus();
  return InvalidMember("max_tokens", "max_tokens is missing; it must be an integer");
}

}  // namespace

StatusOr<ApiRequest> ReadMessagesRequest(MessagesKind kind, const Json& body) {
  ApiRequest out;
  GenerationRequest& generation = out.generation;
  generation.names.messages = "messages";
  generation.names.one_message_a_turn = false;
  generation.names.sampling = "";
  generation.samples = 1;
  generation.skip_special_tokens = true;
  out.blocks.whole_calls = true;
  BATON_RETURN_IF_ERROR(CheckKnown(body,
                                   "",
                                   {"cache_control",
                                    "max_tokens",
                                    "messages",
                                    "metadata",
                                    "model",
                                    "output_config",
                                    "output_format",
                                    "service_tier",
                                    "stop_sequences",
                                    "stream",
                                    "system",
                                    "thinking",
                                    "thread",
                                    "tool_choice",
                                    "tools"},
                                   SharedMembers()));
  BATON_RETURN_IF_ERROR(RefuseThread(body));
  BATON_RETURN_IF_ERROR(ReadString(body, "model", generation.model));
  ChatInput chat;
  BATON_RETURN_IF_ERROR(ReadMessages(body, chat));
  BATON_RETURN_IF_ERROR(
      ReadTools(ToolApi::kMessages, body, chat, generation.chat_output.emplace()));
  BATON_RETURN_IF_ERROR(ReadMessagesFormat(body, generation.output_grammar));
  BATON_RETURN_IF_ERROR(ReadThinking(body, chat, out));
  BATON_RETURN_IF_ERROR(ReadSampling(body, generation.sampling));
  if (const Json* stops = Member(body, "stop_sequences"); stops != nullptr && !stops->is_array()) {
    return Wrong("stop_sequences", "an array of strings");
  }
  BATON_RETURN_IF_ERROR(ReadStrings(body, "stop_sequences", generation.stop));
  if (kind == MessagesKind::kCreate) BATON_RETURN_IF_ERROR(ReadLength(body, generation));
  BATON_RETURN_IF_ERROR(ReadPassed(body, generation));
  BATON_RETURN_IF_ERROR(ReadBool(body, "stream", out.stream));
  out.inputs.emplace_back(std::move(chat));
  return out;
}

}  // namespace baton::router
