#include "router/text/template_context.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/json.h"
#include "router/request_error.h"

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;

// Appended to the content of a message that is to be continued, to find the end of the content in
// the rendered prompt. A template that trims contents drops the mark's last character, a space.
constexpr std::string_view kContinueMark = "CONTINUE_FINAL_MESSAGE ";

// Parses `text` as a JSON array or object. Errors: InvalidArgument naming `field`.
StatusOr<Json> ParseField(const std::string& field, const std::string& text, bool array) {
  BATON_ASSIGN_OR_RETURN(Json value, ParseOrderedJson(field, text));
  if (array ? value.is_array() : value.is_object()) return value;
  return InvalidArgument("{} must be a JSON {}", field, array ? "array" : "object");
}

// The message with role, content and the members of `extra`, an object. `extra` may replace role
// and content. Does not use the library's update(), which compares each new member with all others.
Json MessageOf(const ChatTurn& turn, const std::string& content, Json extra) {
  using Members = Json::object_t::Container;
  auto& given = static_cast<Members&>(extra.get_ref<Json::object_t&>());
  Members members;
  members.reserve(given.size() + 2);
  members.emplace_back("role", turn.role);
  members.emplace_back("content", content);
  for (auto& [key, value] : given) {
    if (key == "role" || key == "content") {
      members[key == "role" ? 0 : 1].second = std::move(value);
    } else {
      members.emplace_back(key, std::move(value));
    }
  }
  Json message = Json::object();
  static_cast<Members&>(message.get_ref<Json::object_t&>()) = std::move(members);
  return message;
}

// Replaces the arguments of tool calls by objects. OpenAI's clients send them as JSON text, but
// templates expect an object, as vLLM passes it. Text that is not a JSON object stays text; an
// empty text is a call without arguments.
void ParseCallArguments(Json& message) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array()) return;
  for (Json& call : *calls) {
    if (!call.is_object() || !call.contains("function")) continue;
    Json& function = call["function"];
    if (!function.is_object() || !function.contains("arguments")) continue;
    Json& arguments = function["arguments"];
    if (!arguments.is_string()) continue;
    const auto& text = arguments.get_ref<const std::string&>();
    StatusOr<Json> parsed =
        text.empty() ? StatusOr<Json>(Json::object()) : ParseOrderedJson("arguments", text);
    if (parsed.ok() && parsed->is_object()) arguments = *std::move(parsed);
  }
}

// Replaces null contents of messages by empty texts. Returns false when there are none.
bool EmptyNullContents(Json& context) {
  bool any = false;
  for (Json& message : context["messages"]) {
    Json& content = message["content"];
    if (!content.is_null()) continue;
    content = "";
    any = true;
  }
  return any;
}

// Replaces the arguments of tool calls by JSON text. Returns false when there are none.
bool WriteCallArguments(Json& context) {
  bool any = false;
  for (Json& message : context["messages"]) {
    const auto calls = message.find("tool_calls");
    if (calls == message.end() || !calls->is_array()) continue;
    for (Json& call : *calls) {
      if (!call.is_object() || !call.contains("function")) continue;
      Json& function = call["function"];
      if (!function.is_object() || !function.contains("arguments")) continue;
      Json& arguments = function["arguments"];
      if (!arguments.is_object()) continue;
      arguments = arguments.dump(-1, ' ', false, Json::error_handler_t::replace);
      any = true;
    }
  }
  return any;
}

StatusOr<Json> TemplateMessage(const ChatTurn& turn, size_t index, bool continued) {
  Json extra = Json::object();
  if (!turn.extra_json.empty()) {
    BATON_ASSIGN_OR_RETURN(
        extra,
        ParseField(fmt::format("chat.messages[{}].extra_json", index), turn.extra_json, false));
  }
  const std::string content = turn.content + std::string(continued ? kContinueMark : "");
  Json message = MessageOf(turn, content, std::move(extra));
  // OpenAI's newer name of the same role, which hardly any template knows.
  if (message["role"] == "developer") message["role"] = "system";
  ParseCallArguments(message);
  return message;
}

// Sets add_generation_prompt, which lets the template begin an answer after the messages.
Status SetGenerationPrompt(const ChatInput& chat, Json& context) {
  constexpr const char* kName = "add_generation_prompt";
  if (!context.contains(kName)) context[kName] = !chat.continue_final_message;
  if (!chat.continue_final_message || context[kName] == false) return OkStatus();
  return InvalidMember("continue_final_message",
                       "continue_final_message and add_generation_prompt are both true; the prompt "
                       "ends either inside the last message or after it");
}

// The variables that the client states.
StatusOr<Json> TemplateArguments(const ChatInput& chat, const FieldNames& names) {
  if (chat.arguments_json.empty()) return Json::object();
  BATON_ASSIGN_OR_RETURN(
      Json arguments,
      ParseField(std::string(names.template_arguments), chat.arguments_json, false));
  for (const char* name :
       {"messages", "tools", "bos_token", "eos_token", "unk_token", "pad_token"}) {
    if (!arguments.contains(name)) continue;
    return InvalidMember(fmt::format("{}.{}", names.template_arguments, name),
                         "{}.{} cannot be given: the template gets {} from {}",
                         names.template_arguments,
                         name,
                         name,
                         std::string_view(name).ends_with("_token")
                             ? "the model's files"
                             : "the request's member of this name");
  }
  return arguments;
}

// The variables of templates that choose whether and how much the model reasons.
constexpr const char* kEffort = "reasoning_effort";
constexpr const char* kThinking[] = {"enable_thinking", "thinking"};

bool IsWordCharacter(char c) {
  return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Whether the template mentions the variable `name`.
bool Reads(std::string_view source, std::string_view name) {
  for (size_t at = source.find(name); at != std::string_view::npos;
       at = source.find(name, at + 1)) {
    const size_t end = at + name.size();
    const bool begins = at == 0 || !IsWordCharacter(source[at - 1]);
    if (begins && (end == source.size() || !IsWordCharacter(source[end]))) return true;
  }
  return false;
}

bool ReadsThinking(std::string_view source) {
  return std::ranges::any_of(kThinking, [&](const char* name) { return Reads(source, name); });
}

void SetThinking(bool thinking, Json& context) {
  for (const char* name : kThinking) {
    if (!context.contains(name)) context[name] = thinking;
  }
}

// Sets the variables of the template that choose how much the model reasons. An effort that the
// template does not read, and thinking that it cannot switch, would silently have no effect.
Status SetReasoning(const TemplateInput& input, Json& context) {
  const ChatInput& chat = input.chat;
  const std::string_view source = input.source;
  if (chat.thinking.has_value()) {
    if (*chat.thinking != input.reasons && !ReadsThinking(source)) {
      return WithReason(InvalidMember("thinking",
                                      "thinking cannot be {}: this model's chat template does not "
                                      "switch it",
                                      *chat.thinking ? "enabled" : "disabled"),
                        reason::kUnsupportedParameter);
    }
    SetThinking(*chat.thinking, context);
  }
  if (chat.reasoning_effort.empty()) return OkStatus();
  if (!Reads(source, kEffort) && !ReadsThinking(source)) {
    return WithReason(InvalidMember(input.names.reasoning_effort,
                                    "{} is not read by this model's chat template",
                                    input.names.reasoning_effort),
                      reason::kUnsupportedParameter);
  }
  if (!context.contains(kEffort)) context[kEffort] = chat.reasoning_effort;
  SetThinking(chat.reasoning_effort != "none", context);
  return OkStatus();
}

}  // namespace

StatusOr<Json> TemplateContext(const TemplateInput& input) {
  const ChatInput& chat = input.chat;
  BATON_ASSIGN_OR_RETURN(Json context, TemplateArguments(chat, input.names));
  Json messages = Json::array();
  for (size_t i = 0; i < chat.turns.size(); ++i) {
    const bool continued = chat.continue_final_message && i + 1 == chat.turns.size();
    BATON_ASSIGN_OR_RETURN(Json message, TemplateMessage(chat.turns[i], i, continued));
    messages.push_back(std::move(message));
  }
  context["messages"] = std::move(messages);
  BATON_RETURN_IF_ERROR(SetGenerationPrompt(chat, context));
  if (!chat.tools_json.empty()) {
    BATON_ASSIGN_OR_RETURN(context["tools"], ParseField("chat.tools_json", chat.tools_json, true));
  }
  const auto set_token = [&](const char* name, std::optional<TokenId> token) {
    context[name] = token.has_value() ? std::string(input.tokenizer.piece(*token)) : std::string();
  };
  const TokenizerSpec& spec = input.tokenizer.spec();
  set_token("bos_token", spec.bos);
  set_token("eos_token", spec.eos.empty() ? std::nullopt : std::optional(spec.eos.front()));
  set_token("unk_token", spec.unknown);
  set_token("pad_token", spec.padding);
  BATON_RETURN_IF_ERROR(SetReasoning(input, context));
  return context;
}

StatusOr<std::vector<TextSegment>> RenderChat(const ChatTemplate& chat_template,
                                              Json& context,
                                              const RenderOptions& options) {
  StatusOr<std::vector<TextSegment>> prompt = chat_template.RenderSegments(context, options);
  for (const auto adapt : {EmptyNullContents, WriteCallArguments}) {
    if (prompt.ok()) break;
    if (adapt(context)) prompt = chat_template.RenderSegments(context, options);
  }
  return prompt;
}

Status CutAtContinueMark(std::vector<TextSegment>& prompt) {
  const std::string_view mark = kContinueMark.substr(0, kContinueMark.size() - 1);
  while (!prompt.empty()) {
    std::string& text = prompt.back().text;
    const size_t at = text.rfind(mark);
    if (at == std::string::npos) {
      prompt.pop_back();
      continue;
    }
    const bool trimmed = std::string_view(text).substr(at, kContinueMark.size()) != kContinueMark;
    text.resize(at);
    if (trimmed) text.erase(text.find_last_not_of(" \t\n\r") + 1);
    return OkStatus();
  }
  return InvalidMember("continue_final_message",
                       "continue_final_message is true, but the chat template does not print the "
                       "content of the last message");
}

}  // namespace baton::router
