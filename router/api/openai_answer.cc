#include "router/api/openai_answer.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "common/text/utf8.h"
#include "router/api/answer_json.h"
#include "router/api/logprobs_json.h"
#include "router/request_error.h"

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;

std::string Event(const Json& json) {
  return "data: " + Dump(json) + "\n\n";
}

Json FinishOf(const ApiChoice& choice) {
  if (choice.finish == FinishReason::kStop) return choice.HasCall() ? "tool_calls" : "stop";
  if (choice.finish == FinishReason::kLength) return "length";
  return nullptr;
}

Json UsageOf(const GenerationEnd& end) {
  Json usage = {{"prompt_tokens", end.prompt_tokens},
                {"completion_tokens", end.generated_tokens},
                {"total_tokens", end.prompt_tokens + end.generated_tokens},
                {"prompt_tokens_details", {{"cached_tokens", end.account.cached_tokens}}}};
  if (end.reasoning_tokens > 0) {
    usage["completion_tokens_details"] = {{"reasoning_tokens", end.reasoning_tokens}};
  }
  return usage;
}

// The token's text, and OpenAI's form of bytes that are no text. Different tokens give different
// texts, as keys of an object must.
std::string TokenText(const std::string& piece) {
  if (IsValidUtf8(piece)) return piece;
  std::string out = "bytes:";
  for (const char c : piece) out += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
  return out;
}

Json LogprobsOf(OpenAiKind kind, const std::vector<TokenLogprobs>& in) {
  if (kind == OpenAiKind::kChat) return {{"content", LogprobsJson(in)}};
  Json out = {{"tokens", Json::array()},
              {"token_logprobs", Json::array()},
              {"top_logprobs", Json::array()},
              {"text_offset", Json::array()}};
  for (const TokenLogprobs& token : in) {
    out["tokens"].push_back(TokenText(token.chosen.piece));
    out["text_offset"].push_back(token.text_offset);
    if (!token.known) {
      out["token_logprobs"].push_back(nullptr);
      out["top_logprobs"].push_back(nullptr);
      continue;
    }
    out["token_logprobs"].push_back(token.chosen.logprob);
    Json top = Json::object();
    for (const TextLogprob& one : token.top) top[TokenText(one.piece)] = one.logprob;
    top[TokenText(token.chosen.piece)] =
        token.chosen.logprob;  // included even if not among the highest
    out["top_logprobs"].push_back(std::move(top));
  }
  return out;
}

// vLLM's member. A chosen token that is not among the highest has no known rank.
Json PromptLogprobsOf(const std::vector<TokenLogprobs>& in) {
  Json out = Json::array();
  for (const TokenLogprobs& token : in) {
    if (!token.known) {
      out.push_back(nullptr);
      continue;
    }
    Json one = Json::object();
    const auto add = [&](const TextLogprob& candidate, Json rank) {
      one[fmt::format("{}", candidate.token)] = {{"logprob", candidate.logprob},
                                                 {"rank", std::move(rank)},
                                                 {"decoded_token", TokenText(candidate.piece)}};
    };
    add(token.chosen, nullptr);
    for (size_t i = 0; i < token.top.size(); ++i) add(token.top[i], i + 1);
    out.push_back(std::move(one));
  }
  return out;
}

Json Envelope(const OpenAiHead& head, bool chunk) {
  const bool chat = head.kind == OpenAiKind::kChat;
  const char* object = !chat   ? "text_completion"
                       : chunk ? "chat.completion.chunk"
                               : "chat.completion";
  Json out = {{"id", head.id},
              {"object", object},
              {"created", head.created},
              {"model", head.model},
              {"choices", Json::array()}};
  if (!head.fingerprint.empty()) out["system_fingerprint"] = head.fingerprint;
  return out;
}

Json ModelObject(const std::string& name, int64_t created, int32_t context_length) {
  return {{"id", name},
          {"object", "model"},
          {"created", created},
          {"owned_by", "baton"},
          {"max_model_len", context_length},
          {"context_length", context_length}};
}

// What ended the output, apart from the model: vLLM's member, and a word for the deadline.
void SetStopReason(const OpenAiHead& head, const ApiChoice& in, Json& out) {
  if (in.past_deadline) out["stop_reason"] = "deadline";
  if (in.stop_index >= 0) out["stop_reason"] = head.stops.at(static_cast<size_t>(in.stop_index));
  if (in.stop_token.has_value()) out["stop_reason"] = *in.stop_token;
}

}  // namespace

std::string OpenAiAnswer::Body(const std::vector<ApiChoice>& choices, const GenerationEnd& end) {
  Json body = Envelope(head_, false);
  for (size_t i = 0; i < choices.size(); ++i) {
    const ApiChoice& in = choices[i];
    Json choice = {{"index", i}};
    if (head_.kind == OpenAiKind::kChat) {
      choice["message"] = ChatMessage(in);
    } else {
      choice["text"] = in.text;
    }
    choice["logprobs"] = head_.with_logprobs ? LogprobsOf(head_.kind, in.logprobs) : Json(nullptr);
    choice["finish_reason"] = FinishOf(in);
    SetStopReason(head_, in, choice);
    if (head_.with_prompt_logprobs) {
      Json& owner = head_.kind == OpenAiKind::kChat ? body : choice;
      owner["prompt_logprobs"] = PromptLogprobsOf(in.prompt_logprobs);
    }
    body["choices"].push_back(std::move(choice));
  }
  body["usage"] = UsageOf(end);
  return Dump(body);
}

std::string OpenAiAnswer::Delta(const ApiDelta& in) {
  Json choice = {{"index", in.number}};
  if (head_.kind == OpenAiKind::kChat) {
    if (messages_.size() <= in.number) messages_.resize(in.number + 1);
    choice["delta"] = messages_[in.number].Delta(in.choice, in.first);
    // Text may wait for its last bytes, and a call for its end.
    const bool empty = choice["delta"].empty() && in.delta.logprobs.empty();
    if (empty && in.choice.finish == FinishReason::kNone) return "";
  } else {
    choice["text"] = in.delta.text;
  }
  choice["logprobs"] =
      in.delta.logprobs.empty() ? Json(nullptr) : LogprobsOf(head_.kind, in.delta.logprobs);
  choice["finish_reason"] = FinishOf(in.choice);
  SetStopReason(head_, in.choice, choice);
  Json body = Envelope(head_, true);
  body["choices"].push_back(std::move(choice));
  if (head_.continuous_usage) {
    body["usage"] = UsageOf(in.usage);
  } else if (head_.include_usage) {
    body["usage"] = nullptr;
  }
  return Event(body);
}

std::string OpenAiAnswer::End(const std::vector<ApiChoice>&, const GenerationEnd& end) {
  constexpr const char* kDone = "data: [DONE]\n\n";
  if (!head_.include_usage) return kDone;
  Json body = Envelope(head_, true);
  body["usage"] = UsageOf(end);
  return Event(body) + kDone;
}

std::string OpenAiAnswer::Failure(const std::vector<ApiChoice>&, const Status& status) {
  return "data: " + OpenAiError(status) + "\n\ndata: [DONE]\n\n";
}

std::string OpenAiAnswer::Error(const Status& status) {
  return OpenAiError(status);
}

std::string OpenAiModel(const std::string& name, int64_t created, int32_t context_length) {
  return Dump(ModelObject(name, created, context_length));
}

std::string OpenAiModels(const std::vector<std::string>& names,
                         int64_t created,
                         int32_t context_length) {
  Json models = Json::array();
  for (const std::string& name : names) {
    models.push_back(ModelObject(name, created, context_length));
  }
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

}  // namespace baton::router
