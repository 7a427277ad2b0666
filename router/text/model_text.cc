#include "router/text/model_text.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <map>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/json.h"
#include "common/base/mapped_file.h"
#include "common/model/open_model.h"
#include "common/model/tokenizer_source.h"
#include "router/request_error.h"
#include "router/text/chat_tools.h"
#include "router/text/template_context.h"

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;

StatusOr<ChatTemplateSource> TemplateSource(const std::string& model, const std::string& file) {
  if (file.empty()) return LoadChatTemplate(model);
  StatusOr<std::string> text = ReadFile(file);
  if (!text.ok()) return InvalidArgument("chat_template: {}", Message(text.status()));
  return ChatTemplateSource{*std::move(text), file};
}

EncodeLimits EncodeLimitsOf(const TextLimits& limits) {
  return {.max_tokens = limits.max_tokens, .cancelled = limits.cancelled};
}

// The content of messages that show whether the template prints them.
constexpr std::string_view kMark = "ROLE_PROBE_";

// The roles whose messages the template prints in plain chats. Others are looked at in each chat.
std::vector<std::string> KnownRoles(const ChatTemplate& chat_template, const Tokenizer& tokenizer) {
  const ChatTurn user{"user", "x", ""};
  const ChatTurn call{"assistant",
                      "",
                      R"({"tool_calls": [{"id": "call00001", "type": "function",
                          "function": {"name": "f", "arguments": "{}"}}]})"};
  const std::string mark(kMark);
  const std::pair<const char*, ChatInput> probes[] = {
      {"system", {{{"system", mark, ""}, user}, "", ""}},
      {"tool", {{user, call, {"tool", mark, R"({"tool_call_id": "call00001"})"}}, "", ""}}};
  std::vector<std::string> known = {"user", "assistant"};
  for (const auto& [role, chat] : probes) {
    const StatusOr<Json> context = TemplateContext(
        {.chat = chat, .names = {}, .tokenizer = tokenizer, .source = chat_template.source()});
    if (!context.ok()) continue;
    const StatusOr<std::string> prompt = chat_template.Render(*context, {});
    if (prompt.ok() && prompt->find(kMark) != std::string::npos) known.emplace_back(role);
  }
  return known;
}

// The tools of the chat that may be called.
Json CallableTools(const ChatInput& chat, const ChatOutput& output) {
  Json callable = Json::array();
  StatusOr<Json> tools = ParseOrderedJson("tools", chat.tools_json);
  if (!tools.ok()) return callable;
  for (Json& tool : *tools) {
    if (output.MayCall(ToolName(tool))) callable.push_back(std::move(tool));
  }
  return callable;
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
    auto parsed = ChatTemplate::Parse(source->text);
    if (!parsed.ok()) return Annotate(parsed.status(), source->origin);
    chat_template = *std::move(parsed);
    formats = FindChatFormats(*chat_template, tokenizer);
    formats.may_begin_reasoning |= options.reasoning.has_value();
  } else if (source.status().code() != StatusCode::kNotFound) {
    return source.status();
  }
  formats.calls = options.calls.value_or(formats.calls);
  formats.reasoning = options.reasoning.value_or(formats.reasoning);
  PromptResults results;
  results.embedding_size = spec.hidden;
  BATON_ASSIGN_OR_RETURN(results.pooling, LoadPoolingConfig(path));
  if (options.pooling == Pooling::kNone) {
    results.pooling = {.why_not =
                           "computes no embeddings (router setting embedding_pooling: none)"};
  } else if (options.pooling.has_value()) {
    results.pooling = {.pooling = *options.pooling, .normalize = true};
  }
  BATON_RETURN_IF_ERROR(FindReranker(options.rerank, chat_template, tokenizer, results));
  return std::make_unique<ModelText>(options.name.empty() ? model.name : options.name,
                                     std::move(tokenizer),
                                     std::move(chat_template),
                                     std::move(end_tokens),
                                     spec.context_length,
                                     vocabulary,
                                     formats,
                                     std::move(results));
}

ModelText::ModelText(std::string name,
                     Tokenizer tokenizer,
                     std::optional<ChatTemplate> chat_template,
                     std::vector<TokenId> end_tokens,
                     int32_t context_length,
                     int32_t vocabulary,
                     const ChatFormats& formats,
                     PromptResults results)
    : name_(std::move(name)),
      tokenizer_(std::move(tokenizer)),
      template_(std::move(chat_template)),
      end_tokens_(std::move(end_tokens)),
      context_length_(context_length),
      vocabulary_(vocabulary),
      formats_(formats),
      results_(std::move(results)) {
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
  marked_formats_ = {formats.calls, formats.reasoning, SpecialMarkers(std::move(special))};
  if (template_.has_value()) known_roles_ = KnownRoles(*template_, tokenizer_);
}

ModelText::Reasoning ModelText::ReasoningAfter(const ChatInput* chat,
                                               std::span<const TokenId> prompt) const {
  const bool continues = chat != nullptr && chat->continue_final_message && !chat->turns.empty() &&
                         !chat->turns.back().content.empty();
  // As long as a marker and the text that is continued, even if each byte has a token of its own.
  constexpr size_t kMarkerBytes = 32;
  const size_t bytes = kMarkerBytes + (continues ? chat->turns.back().content.size() : 0);
  const std::string text = tokenizer_.Decode(prompt.last(std::min(prompt.size(), bytes)), false);
  const std::string_view end =
      std::string_view(text).substr(text.size() - std::min(text.size(), bytes));
  if (BeginsReasoning(formats_.reasoning, end, continues)) return Reasoning::kInside;
  if (continues || EndsReasoning(formats_.reasoning, end)) return Reasoning::kOver;
  return Reasoning::kNotBegun;
}

ChatParserOptions ModelText::ParserOptions(const ChatInput& chat,
                                           const ChatOutput& output,
                                           std::span<const TokenId> prompt) const {
  ChatParserOptions options;
  options.reasoning = formats_.reasoning;
  options.in_reasoning = ReasoningAfter(&chat, prompt) == Reasoning::kInside;
  options.special = marked_formats_.special;
  if (!output.calls) return options;
  options.calls = formats_.calls;
  options.offered_only = !output.allowed_tools.empty();
  options.tools = std::make_shared<const ToolSchemas>(CallableTools(chat, output));
  return options;
}

// Refuses a text that cannot fit into the context even in the shortest possible encoding.
Status ModelText::CheckLength(size_t bytes, const TextLimits& limits) const {
  const size_t longest = tokenizer_.max_token_bytes();
  const auto tokens = static_cast<size_t>(std::max(0, limits.context_length));
  if (bytes / longest < tokens) return OkStatus();
  return WithReason(
      InvalidArgument(
          "the prompt is too long: it has {} bytes, but this model's maximum context length is {} "
          "tokens, which hold {} bytes at most",
          bytes,
          limits.context_length,
          tokens * longest),
      reason::kContextLengthExceeded);
}

StatusOr<std::vector<TokenId>> ModelText::Encode(const GenerationRequest& request,
                                                 const TextLimits& limits) const {
  if (const auto* tokens = std::get_if<std::vector<TokenId>>(&request.input)) return *tokens;
  if (const auto* chat = std::get_if<ChatInput>(&request.input)) {
    StatusOr<std::vector<TokenId>> prompt = EncodeChat(*chat, request, limits);
    if (!prompt.ok()) return AtMember(prompt.status(), request.names.messages);
    return prompt;
  }
  if (const auto* text = std::get_if<std::string>(&request.input)) {
    StatusOr<std::vector<TokenId>> prompt = EncodePrompt(*text, request, limits);
    if (!prompt.ok()) return AtMember(prompt.status(), request.names.text);
    return prompt;
  }
  if (const auto* pair = std::get_if<RerankInput>(&request.input)) {
    StatusOr<std::vector<TokenId>> prompt = EncodePair(*pair, limits);
    if (!prompt.ok()) return AtMember(prompt.status(), request.names.text);
    return prompt;
  }
  return InvalidArgument("the request has no input; set one of text, chat or tokens");
}

StatusOr<std::vector<TokenId>> ModelText::EncodePair(const RerankInput& pair,
                                                     const TextLimits& limits) const {
  if (!results_.reranker.has_value()) {
    return InvalidArgument("model {} {}", name_, results_.why_no_reranker);
  }
  RenderOptions rendering;
  rendering.cancelled = limits.cancelled;
  const auto prompt = results_.reranker->Render(pair, rendering);
  BATON_RETURN_IF_ERROR(CheckCancelled(limits));
  if (!prompt.ok()) return InvalidArgument("the reranker's prompt: {}", Message(prompt.status()));
  return EncodeSegments(*prompt, /*add_special=*/false, limits);
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

// Refuses messages that the template leaves out, as many do without a word when they do not know
// the role. Renders the chat once more, with marks as the contents, if it has such roles.
Status ModelText::CheckRoles(const Json& context,
                             const RenderOptions& options,
                             const FieldNames& names) const {
  std::map<size_t, Json> silent;  // the roles to look at, by the number of the message
  for (size_t i = 0; i < context["messages"].size(); ++i) {
    const Json& role = context["messages"][i]["role"];
    const bool known = std::ranges::any_of(known_roles_, [&](auto& one) { return role == one; });
    if (!known) silent.emplace(i, role);
  }
  if (silent.empty()) return OkStatus();
  Json probe = context;
  for (const auto& [number, role] : silent) {
    probe["messages"][number]["content"] = fmt::format("{}{}.", kMark, number);
  }
  const StatusOr<std::vector<TextSegment>> prompt = template_->RenderSegments(probe, options);
  if (!prompt.ok()) return OkStatus();  // the template looks at what these messages contain
  for (const TextSegment& segment : *prompt) {
    const std::string_view text = segment.text;
    for (size_t at = text.find(kMark); at != std::string::npos; at = text.find(kMark, at + 1)) {
      size_t number = 0;
      std::from_chars(text.data() + at + kMark.size(), text.data() + text.size(), number);
      silent.erase(number);
    }
  }
  if (silent.empty()) return OkStatus();
  const auto& [number, role] = *silent.begin();
  const std::string member = names.one_message_a_turn
                                 ? fmt::format("{}[{}].role", names.messages, number)
                                 : std::string(names.messages);
  return InvalidMember(member,
                       "{} {} {}; this model's chat template prints no message of this role",
                       member,
                       names.one_message_a_turn ? "is" : "has a message of the role",
                       Shown(role.dump()));
}

StatusOr<std::vector<TokenId>> ModelText::EncodeChat(const ChatInput& chat,
                                                     const GenerationRequest& request,
                                                     const TextLimits& limits) const {
  if (!template_.has_value()) {
    return InvalidArgument("model {} has no chat template; use text instead of chat", name_);
  }
  const FieldNames& names = request.names;
  BATON_ASSIGN_OR_RETURN(
      Json context,
      TemplateContext({.chat = chat,
                       .names = names,
                       .tokenizer = tokenizer_,
                       .source = template_->source(),
                       .reasons = formats_.reasoning != ReasoningFormat::kNone}));
  RenderOptions options;
  options.now = std::chrono::system_clock::now();
  options.cancelled = limits.cancelled;
  StatusOr<std::vector<TextSegment>> prompt = RenderChat(*template_, context, options);
  BATON_RETURN_IF_ERROR(CheckCancelled(limits));
  // InvalidArgument also when a limit of the template was exceeded, because a retry would exceed it
  // again.
  if (!prompt.ok()) return InvalidArgument("chat: {}", Message(prompt.status()));
  BATON_RETURN_IF_ERROR(CheckRoles(context, options, names));
  if (chat.continue_final_message) BATON_RETURN_IF_ERROR(CutAtContinueMark(*prompt));
  return EncodeSegments(*prompt, request.add_special_tokens.value_or(false), limits);
}

StatusOr<std::vector<TokenId>> ModelText::EncodeSegments(std::span<const TextSegment> segments,
                                                         bool add_special,
                                                         const TextLimits& limits) const {
  size_t bytes = 0;
  for (const TextSegment& segment : segments) bytes += segment.text.size();
  BATON_RETURN_IF_ERROR(CheckLength(bytes, limits));
  auto tokens = tokenizer_.EncodeSegments(segments, add_special, EncodeLimitsOf(limits));
  BATON_RETURN_IF_ERROR(CheckCancelled(limits));
  return tokens;
}

}  // namespace baton::router
