#include "router/model_text.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/json.h"
#include "common/base/mapped_file.h"
#include "common/model/open_model.h"
#include "common/model/tokenizer_source.h"
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

StatusOr<Json> TemplateMessage(const ChatTurn& turn, size_t index, bool continued) {
  Json extra = Json::object();
  if (!turn.extra_json.empty()) {
    BATON_ASSIGN_OR_RETURN(
        extra,
        ParseField(fmt::format("chat.messages[{}].extra_json", index), turn.extra_json, false));
  }
  const std::string content = turn.content + std::string(continued ? kContinueMark : "");
  Json message = MessageOf(turn, content, std::move(extra));
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

// The variables that a Hugging Face tokenizer passes to its template.
StatusOr<Json> TemplateContext(const ChatInput& chat, const Tokenizer& tokenizer) {
  Json context = Json::object();
  if (!chat.arguments_json.empty()) {
    BATON_ASSIGN_OR_RETURN(context,
                           ParseField("chat.template_arguments_json", chat.arguments_json, false));
  }
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
    context[name] = token.has_value() ? std::string(tokenizer.piece(*token)) : std::string();
  };
  const TokenizerSpec& spec = tokenizer.spec();
  set_token("bos_token", spec.bos);
  set_token("eos_token", spec.eos.empty() ? std::nullopt : std::optional(spec.eos.front()));
  set_token("unk_token", spec.unknown);
  set_token("pad_token", spec.padding);
  return context;
}

// Replaces null contents by empty texts. Returns false when there are none.
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

// Removes the text that the template wrote after the content of the last message. Like Hugging
// Face's apply_chat_template, also removes the content's trailing white space if the template does.
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

StatusOr<ChatTemplateSource> TemplateSource(const std::string& model, const std::string& file) {
  if (file.empty()) return LoadChatTemplate(model);
  StatusOr<std::string> text = ReadFile(file);
  if (!text.ok()) return InvalidArgument("chat_template: {}", Message(text.status()));
  return ChatTemplateSource{*std::move(text), file};
}

// Sets the variables of the template that choose how much the model reasons. An effort that the
// template does not read would silently have no effect.
Status SetReasoningEffort(const ChatInput& chat, std::string_view source, Json& context) {
  constexpr const char* kEffort = "reasoning_effort";
  constexpr const char* kThinking = "enable_thinking";
  if (chat.reasoning_effort.empty()) return OkStatus();
  const auto reads = [&](const char* name) { return source.find(name) != std::string_view::npos; };
  if (!reads(kEffort) && !reads(kThinking)) {
    return WithReason(
        InvalidMember(kEffort, "reasoning_effort is not read by this model's chat template"),
        reason::kUnsupportedParameter);
  }
  if (!context.contains(kEffort)) context[kEffort] = chat.reasoning_effort;
  if (!context.contains(kThinking)) context[kThinking] = chat.reasoning_effort != "none";
  return OkStatus();
}

EncodeLimits EncodeLimitsOf(const TextLimits& limits) {
  return {.max_tokens = limits.max_tokens, .cancelled = limits.cancelled};
}

Status CheckCancelled(const TextLimits& limits) {
  if (!limits.cancelled || !limits.cancelled()) return OkStatus();
  return Status(StatusCode::kCancelled, "the client left");
}

}  // namespace

StatusOr<std::unique_ptr<ModelText>> ModelText::Load(const std::string& path,
                                                     const ModelTextOptions& options) {
  // Dummy weights: the router needs shape and name, not the weight files.
  BATON_ASSIGN_OR_RETURN(const OpenedModel model, OpenModel(path, {.format = LoadFormat::kDummy}));
  const ModelSpec& spec = model.spec;
  BATON_ASSIGN_OR_RETURN(TokenizerSpec tokenizer_spec, LoadTokenizerSpec(path));
  BATON_ASSIGN_OR_RETURN(const int32_t vocabulary, CountTokenIds(path, spec, tokenizer_spec));
  std::vector<TokenId> end_tokens = tokenizer_spec.eos;
  BATON_ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::Create(std::move(tokenizer_spec)));
  const StatusOr<ChatTemplateSource> source = TemplateSource(path, options.chat_template);
  std::optional<ChatTemplate> chat_template;
  ChatFormats formats;
  if (source.ok()) {
    formats.calls = ToolCallFormatOf(source->text);
    formats.reasoning = ReasoningFormatOf(source->text);
    auto parsed = ChatTemplate::Parse(source->text);
    if (!parsed.ok()) return Annotate(parsed.status(), source->origin);
    chat_template = *std::move(parsed);
  } else if (source.status().code() != StatusCode::kNotFound) {
    return source.status();
  }
  formats.calls = options.calls.value_or(formats.calls);
  formats.reasoning = options.reasoning.value_or(formats.reasoning);
  return std::make_unique<ModelText>(options.name.empty() ? model.name : options.name,
                                     std::move(tokenizer),
                                     std::move(chat_template),
                                     std::move(end_tokens),
                                     spec.context_length,
                                     vocabulary,
                                     formats);
}

ModelText::ModelText(std::string name,
                     Tokenizer tokenizer,
                     std::optional<ChatTemplate> chat_template,
                     std::vector<TokenId> end_tokens,
                     int32_t context_length,
                     int32_t vocabulary,
                     const ChatFormats& formats)
    : name_(std::move(name)),
      tokenizer_(std::move(tokenizer)),
      template_(std::move(chat_template)),
      end_tokens_(std::move(end_tokens)),
      context_length_(context_length),
      vocabulary_(vocabulary),
      formats_(formats) {
  std::vector<std::string_view> special;
  for (const std::vector<std::string_view>& markers :
       {TokensOf(formats.calls), TokensOf(formats.reasoning)}) {
    for (const std::string_view marker : markers) {
      const auto token = tokenizer_.Find(marker);
      if (!token.has_value()) continue;
      chat_tokens_.push_back(*token);
      if (tokenizer_.is_special(*token)) special.push_back(marker);
    }
  }
  special_markers_ = SpecialMarkers(std::move(special));
}

ChatParserOptions ModelText::ParserOptions(const ChatInput& chat,
                                           const ChatOutput& output,
                                           std::span<const TokenId> prompt) const {
  // The end of the prompt contains the marker of the reasoning, even if the marker has one token
  // for each byte, and the text that is continued.
  constexpr size_t kMarkerBytes = 32;
  const bool continues = chat.continue_final_message && !chat.turns.empty();
  const size_t bytes = kMarkerBytes + (continues ? chat.turns.back().content.size() : 0);
  const std::string text = tokenizer_.Decode(prompt.last(std::min(prompt.size(), bytes)), false);
  const std::string_view end =
      std::string_view(text).substr(text.size() - std::min(text.size(), bytes));
  ChatParserOptions options;
  options.reasoning = formats_.reasoning;
  options.in_reasoning = BeginsReasoning(formats_.reasoning, end, continues);
  // A grammar of forced calls counts the bytes of tokens: it takes a marker's text in ordinary
  // tokens, too.
  if (output.choice == ChatOutput::Choice::kAuto) options.special = special_markers_;
  if (!output.calls) return options;
  options.calls = formats_.calls;
  const StatusOr<Json> tools = ParseOrderedJson("tools", chat.tools_json);
  if (tools.ok()) options.tools = std::make_shared<const ToolSchemas>(*tools);
  return options;
}

// Refuses a text that cannot fit into the context even in the shortest possible encoding.
Status ModelText::CheckLength(size_t bytes, const TextLimits& limits) const {
  const size_t longest = tokenizer_.max_token_bytes();
  const auto tokens = static_cast<size_t>(std::max(0, limits.context_length));
  if (bytes / longest < tokens) return OkStatus();
  return WithReason(
      InvalidArgument(
          "the prompt has {} bytes; the context length is {} tokens, which hold {} bytes at most",
          bytes,
          limits.context_length,
          tokens * longest),
      reason::kContextLengthExceeded);
}

StatusOr<std::vector<TokenId>> ModelText::Encode(const GenerationRequest& request,
                                                 const TextLimits& limits) const {
  if (const auto* tokens = std::get_if<std::vector<TokenId>>(&request.input)) return *tokens;
  if (const auto* chat = std::get_if<ChatInput>(&request.input)) {
    StatusOr<std::vector<TokenId>> prompt =
        EncodeChat(*chat, request.add_special_tokens.value_or(false), limits);
    if (!prompt.ok()) return AtMember(prompt.status(), request.names.messages);
    return prompt;
  }
  if (const auto* text = std::get_if<std::string>(&request.input)) {
    StatusOr<std::vector<TokenId>> prompt = EncodePrompt(*text, request, limits);
    if (!prompt.ok()) return AtMember(prompt.status(), request.names.text);
    return prompt;
  }
  return InvalidArgument("the request has no input; set one of text, chat or tokens");
}

// An empty text becomes a BOS token, the beginning of a document, as in OpenAI's API.
StatusOr<std::vector<TokenId>> ModelText::EncodePrompt(const std::string& text,
                                                       const GenerationRequest& request,
                                                       const TextLimits& limits) const {
  const EncodeOptions options{.add_special = request.add_special_tokens.value_or(true),
                              .parse_special = false};
  BATON_ASSIGN_OR_RETURN(std::vector<TokenId> tokens, EncodeText(text, options, limits));
  if (!tokens.empty()) return tokens;
  if (const std::optional<TokenId> bos = tokenizer_.spec().bos; bos.has_value()) {
    return std::vector<TokenId>{*bos};
  }
  return InvalidArgument(
      "{} is empty, and model {} has no BOS token to begin with; a prompt needs at least one token",
      request.names.text,
      name_);
}

StatusOr<std::vector<TokenId>> ModelText::EncodeText(std::string_view text,
                                                     EncodeOptions options,
                                                     const TextLimits& limits) const {
  BATON_RETURN_IF_ERROR(CheckLength(text.size(), limits));
  auto tokens = tokenizer_.Encode(text, options, EncodeLimitsOf(limits));
  BATON_RETURN_IF_ERROR(CheckCancelled(limits));
  return tokens;
}

StatusOr<std::vector<TokenId>> ModelText::EncodeChat(const ChatInput& chat,
                                                     bool add_special_tokens,
                                                     const TextLimits& limits) const {
  if (!template_.has_value()) {
    return InvalidArgument("model {} has no chat template; use text instead of chat", name_);
  }
  BATON_ASSIGN_OR_RETURN(Json context, TemplateContext(chat, tokenizer_));
  BATON_RETURN_IF_ERROR(SetReasoningEffort(chat, template_->source(), context));
  RenderOptions options;
  options.now = std::chrono::system_clock::now();
  options.cancelled = limits.cancelled;
  StatusOr<std::vector<TextSegment>> prompt = template_->RenderSegments(context, options);
  // Clients send null as the content of a message that only calls tools. Templates without support
  // for tools often cannot print null.
  if (!prompt.ok() && EmptyNullContents(context)) {
    prompt = template_->RenderSegments(context, options);
  }
  BATON_RETURN_IF_ERROR(CheckCancelled(limits));
  // InvalidArgument also when a limit of the template was exceeded, because a retry would exceed it
  // again.
  if (!prompt.ok()) return InvalidArgument("chat: {}", Message(prompt.status()));
  if (chat.continue_final_message) BATON_RETURN_IF_ERROR(CutAtContinueMark(*prompt));
  size_t bytes = 0;
  for (const TextSegment& segment : *prompt) bytes += segment.text.size();
  BATON_RETURN_IF_ERROR(CheckLength(bytes, limits));
  auto tokens = tokenizer_.EncodeSegments(*prompt, add_special_tokens, EncodeLimitsOf(limits));
  BATON_RETURN_IF_ERROR(CheckCancelled(limits));
  return tokens;
}

}  // namespace baton::router
