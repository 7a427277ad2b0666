#include "router/model_text.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/model/open_model.h"
#include "common/model/tokenizer_source.h"

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;

// `text` as a JSON value of the wanted kind; InvalidArgument naming `field`.
StatusOr<Json> ParseJson(const std::string& field, const std::string& text, bool array) {
  Json value = Json::parse(text, nullptr, false);
  if (value.is_discarded()) return InvalidArgument("{} is not valid JSON", field);
  if (array ? value.is_array() : value.is_object()) return value;
  return InvalidArgument("{} must be a JSON {}", field, array ? "array" : "object");
}

// What a Hugging Face tokenizer gives to its template.
StatusOr<Json> TemplateContext(const ChatInput& chat, const Tokenizer& tokenizer) {
  Json context = Json::object();
  if (!chat.arguments_json.empty()) {
    BATON_ASSIGN_OR_RETURN(context,
                           ParseJson("chat.template_arguments_json", chat.arguments_json, false));
  }
  Json messages = Json::array();
  for (size_t i = 0; i < chat.turns.size(); ++i) {
    const ChatTurn& turn = chat.turns[i];
    Json message = {{"role", turn.role}, {"content", turn.content}};
    if (!turn.extra_json.empty()) {
      BATON_ASSIGN_OR_RETURN(
          const Json extra,
          ParseJson(fmt::format("chat.messages[{}].extra_json", i), turn.extra_json, false));
      message.update(extra);
    }
    messages.push_back(std::move(message));
  }
  context["messages"] = std::move(messages);
  if (!context.contains("add_generation_prompt")) context["add_generation_prompt"] = true;
  if (!chat.tools_json.empty()) {
    BATON_ASSIGN_OR_RETURN(context["tools"], ParseJson("chat.tools_json", chat.tools_json, true));
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

}  // namespace

StatusOr<std::unique_ptr<ModelText>> ModelText::Load(const std::string& path,
                                                     const std::string& name) {
  // Dummy weights: the router needs shape and name, not the weight files.
  BATON_ASSIGN_OR_RETURN(const OpenedModel model, OpenModel(path, {.format = LoadFormat::kDummy}));
  const ModelSpec& spec = model.spec;
  BATON_ASSIGN_OR_RETURN(TokenizerSpec tokenizer_spec, LoadTokenizerSpec(path));
  std::vector<TokenId> end_tokens = tokenizer_spec.eos;
  BATON_ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::Create(std::move(tokenizer_spec)));
  const StatusOr<std::string> source = LoadChatTemplate(path);
  std::optional<ChatTemplate> chat_template;
  if (source.ok()) {
    BATON_ASSIGN_OR_RETURN(chat_template, ChatTemplate::Parse(*source));
  } else if (source.status().code() != StatusCode::kNotFound) {
    return source.status();
  }
  const auto vocabulary = std::max(spec.vocab, static_cast<int32_t>(tokenizer.vocab_size()));
  return std::make_unique<ModelText>(name.empty() ? model.name : name,
                                     std::move(tokenizer),
                                     std::move(chat_template),
                                     std::move(end_tokens),
                                     spec.context_length,
                                     vocabulary);
}

ModelText::ModelText(std::string name,
                     Tokenizer tokenizer,
                     std::optional<ChatTemplate> chat_template,
                     std::vector<TokenId> end_tokens,
                     int32_t context_length,
                     int32_t vocabulary)
    : name_(std::move(name)),
      tokenizer_(std::move(tokenizer)),
      template_(std::move(chat_template)),
      end_tokens_(std::move(end_tokens)),
      context_length_(context_length),
      vocabulary_(vocabulary) {}

StatusOr<std::vector<TokenId>> ModelText::Encode(const GenerationRequest& request) const {
  if (const auto* tokens = std::get_if<std::vector<TokenId>>(&request.input)) return *tokens;
  if (const auto* chat = std::get_if<ChatInput>(&request.input)) return EncodeChat(*chat);
  if (const auto* text = std::get_if<std::string>(&request.input)) {
    return tokenizer_.Encode(*text, {.add_special = true, .parse_special = false});
  }
  return InvalidArgument("the request has no input; set one of text, chat or tokens");
}

StatusOr<std::vector<TokenId>> ModelText::EncodeChat(const ChatInput& chat) const {
  if (!template_.has_value()) {
    return InvalidArgument("model {} has no chat template; use text instead of chat", name_);
  }
  BATON_ASSIGN_OR_RETURN(const Json context, TemplateContext(chat, tokenizer_));
  RenderOptions options;
  options.now = std::chrono::system_clock::now();
  const StatusOr<std::vector<TextSegment>> prompt = template_->RenderSegments(context, options);
  if (!prompt.ok()) return Annotate(prompt.status(), "chat");
  return tokenizer_.EncodeSegments(*prompt, false);
}

}  // namespace baton::router
