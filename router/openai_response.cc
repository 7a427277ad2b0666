#include "router/openai_response.h"

#include <nlohmann/json.hpp>

#include "router/request_error.h"

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxErrorBytes = 2048;

// Writes JSON. A token's text may end inside a character; U+FFFD replaces invalid bytes.
std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string Event(const Json& json) {
  return "data: " + Dump(json) + "\n\n";
}

Json FinishOf(FinishReason finish) {
  if (finish == FinishReason::kStop) return "stop";
  if (finish == FinishReason::kLength) return "length";
  return nullptr;
}

Json UsageOf(const GenerationEnd& end) {
  return {{"prompt_tokens", end.prompt_tokens},
          {"completion_tokens", end.generated_tokens},
          {"total_tokens", end.prompt_tokens + end.generated_tokens},
          {"prompt_tokens_details", {{"cached_tokens", end.account.cached_tokens}}}};
}

Json ChatLogprob(const TextLogprob& in) {
  Json bytes = Json::array();
  for (const char c : in.piece) bytes.push_back(static_cast<uint8_t>(c));
  return {{"token", in.piece}, {"logprob", in.logprob}, {"bytes", std::move(bytes)}};
}

Json LogprobsOf(OpenAiKind kind, const std::vector<TokenLogprobs>& in) {
  if (kind == OpenAiKind::kChat) {
    Json content = Json::array();
    for (const TokenLogprobs& token : in) {
      Json one = ChatLogprob(token.chosen);
      one["top_logprobs"] = Json::array();
      for (const TextLogprob& top : token.top) one["top_logprobs"].push_back(ChatLogprob(top));
      content.push_back(std::move(one));
    }
    return {{"content", std::move(content)}};
  }
  Json out = {{"tokens", Json::array()},
              {"token_logprobs", Json::array()},
              {"top_logprobs", Json::array()},
              {"text_offset", Json::array()}};
  for (const TokenLogprobs& token : in) {
    out["tokens"].push_back(token.chosen.piece);
    out["token_logprobs"].push_back(token.chosen.logprob);
    Json top = Json::object();
    for (const TextLogprob& one : token.top) top[one.piece] = one.logprob;
    top[token.chosen.piece] = token.chosen.logprob;  // included even if not among the highest
    out["top_logprobs"].push_back(std::move(top));
    out["text_offset"].push_back(token.text_offset);
  }
  return out;
}

Json Envelope(const OpenAiAnswer& answer, bool chunk) {
  const bool chat = answer.kind == OpenAiKind::kChat;
  const char* object = !chat   ? "text_completion"
                       : chunk ? "chat.completion.chunk"
                               : "chat.completion";
  return {{"id", answer.id},
          {"object", object},
          {"created", answer.created},
          {"model", answer.model},
          {"choices", Json::array()}};
}

Json ModelObject(const std::string& name, int64_t created, int32_t context_length) {
  return {{"id", name},
          {"object", "model"},
          {"created", created},
          {"owned_by", "baton"},
          {"max_model_len", context_length},
          {"context_length", context_length}};
}

}  // namespace

std::string OpenAiBody(const OpenAiAnswer& answer,
                       const std::vector<OpenAiChoice>& choices,
                       bool with_logprobs,
                       const GenerationEnd& end) {
  Json body = Envelope(answer, false);
  for (size_t i = 0; i < choices.size(); ++i) {
    Json choice = {{"index", i}};
    if (answer.kind == OpenAiKind::kChat) {
      choice["message"] = {{"role", "assistant"}, {"content", choices[i].text}};
    } else {
      choice["text"] = choices[i].text;
    }
    choice["logprobs"] =
        with_logprobs ? LogprobsOf(answer.kind, choices[i].logprobs) : Json(nullptr);
    choice["finish_reason"] = FinishOf(choices[i].finish);
    body["choices"].push_back(std::move(choice));
  }
  body["usage"] = UsageOf(end);
  return Dump(body);
}

std::string OpenAiChunk(const OpenAiAnswer& answer, const GenerationDelta& delta, bool first) {
  Json body = Envelope(answer, true);
  Json choice = {{"index", delta.sample}};
  if (answer.kind == OpenAiKind::kChat) {
    Json content = Json::object();
    if (first) content["role"] = "assistant";
    if (first || !delta.text.empty()) content["content"] = delta.text;
    choice["delta"] = std::move(content);
  } else {
    choice["text"] = delta.text;
  }
  choice["logprobs"] =
      delta.logprobs.empty() ? Json(nullptr) : LogprobsOf(answer.kind, delta.logprobs);
  choice["finish_reason"] = FinishOf(delta.finish);
  body["choices"].push_back(std::move(choice));
  if (answer.include_usage) body["usage"] = nullptr;
  return Event(body);
}

std::string OpenAiUsageChunk(const OpenAiAnswer& answer, const GenerationEnd& end) {
  Json body = Envelope(answer, true);
  body["usage"] = UsageOf(end);
  return Event(body);
}

std::string OpenAiErrorChunk(const Status& status) {
  return "data: " + OpenAiError(status) + "\n\n";
}

std::string OpenAiModel(const std::string& name, int64_t created, int32_t context_length) {
  return Dump(ModelObject(name, created, context_length));
}

std::string OpenAiModels(const std::string& name, int64_t created, int32_t context_length) {
  Json models = Json::array();
  models.push_back(ModelObject(name, created, context_length));
  return Dump({{"object", "list"}, {"data", std::move(models)}});
}

std::string OpenAiError(const Status& status) {
  const int http = HttpStatusOf(status);
  const char* type = http == 429  ? "rate_limit_error"
                     : http < 500 ? "invalid_request_error"
                                  : "server_error";
  const std::string member = MemberOf(status);
  std::string code = ReasonOf(status);
  if (code.empty()) code = absl::StatusCodeToString(status.code());
  return Dump({{"error",
                {{"message", Shown(Message(status), kMaxErrorBytes)},
                 {"type", type},
                 {"param", member.empty() ? Json(nullptr) : Json(member)},
                 {"code", code}}}});
}

int HttpStatusOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return 200;
    case StatusCode::kInvalidArgument:
    case StatusCode::kOutOfRange:
    case StatusCode::kFailedPrecondition:
      return 400;
    case StatusCode::kNotFound:
      return 404;
    case StatusCode::kResourceExhausted:
      return 429;
    case StatusCode::kCancelled:
      return 499;
    case StatusCode::kUnavailable:
      return 503;
    case StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

}  // namespace baton::router
