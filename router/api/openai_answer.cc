#include "router/api/openai_answer.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "router/api/answer_json.h"
#include "router/request_error.h"

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;

std::string Event(const Json& json) {
  return "data: " + Dump(json) + "\n\n";
}

Json FinishOf(FinishReason finish, bool any_call) {
  if (finish == FinishReason::kStop) return any_call ? "tool_calls" : "stop";
  if (finish == FinishReason::kLength) return "length";
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

// vLLM's name of the reasoning, and the name that DeepSeek and older clients use.
void SetReasoning(const std::string& text, Json& message) {
  message["reasoning"] = text;
  message["reasoning_content"] = text;
}

Json MessageOf(const ApiChoice& choice) {
  Json message = {{"role", "assistant"}, {"content", choice.text}};
  if (choice.text.empty() && !choice.calls.empty()) message["content"] = nullptr;
  if (!choice.reasoning.empty()) SetReasoning(choice.reasoning, message);
  if (choice.calls.empty()) return message;
  Json& calls = message["tool_calls"] = Json::array();
  for (const ApiCallOfTool& call : choice.calls) {
    calls.push_back({{"id", call.id},
                     {"type", "function"},
                     {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  return message;
}

Json ModelObject(const std::string& name, int64_t created, int32_t context_length) {
  return {{"id", name},
          {"object", "model"},
          {"created", created},
          {"owned_by", "baton"},
          {"max_model_len", context_length},
          {"context_length", context_length}};
}

// The member `delta` of a chunk.
class MessageDelta final {
 public:
  MessageDelta(int32_t& begun, int32_t& ended) : begun_(begun), ended_(ended) {}

  void Add(const ChatEvent& event) {
    switch (event.kind) {
      case ChatEvent::Kind::kContent:
      case ChatEvent::Kind::kCallFailed:
        content_ += event.text;
        break;
      case ChatEvent::Kind::kReasoning:
        reasoning_ += event.text;
        break;
      case ChatEvent::Kind::kCallBegin:
        calls_.push_back({{"index", begun_++},
                          {"id", event.id},
                          {"type", "function"},
                          {"function", {{"name", event.text}, {"arguments", ""}}}});
        break;
      case ChatEvent::Kind::kArguments: {
        const int32_t index = begun_ - 1;
        if (calls_.empty() || calls_.back()["index"] != index) {
          calls_.push_back({{"index", index}, {"function", {{"arguments", ""}}}});
        }
        calls_.back()["function"]["arguments"].get_ref<std::string&>() += event.text;
        break;
      }
      case ChatEvent::Kind::kCallEnd:
        ++ended_;
        break;
    }
  }

  Json Take(bool first) {
    Json delta = Json::object();
    if (first) delta["role"] = "assistant";
    if (!content_.empty() || (first && calls_.empty())) delta["content"] = content_;
    if (!reasoning_.empty()) SetReasoning(reasoning_, delta);
    if (!calls_.empty()) delta["tool_calls"] = std::move(calls_);
    return delta;
  }

 private:
  int32_t& begun_;
  int32_t& ended_;
  std::string content_;
  std::string reasoning_;
  Json calls_ = Json::array();
};

}  // namespace

std::string OpenAiAnswer::Body(const std::vector<ApiChoice>& choices, const GenerationEnd& end) {
  Json body = Envelope(head_, false);
  for (size_t i = 0; i < choices.size(); ++i) {
    const ApiChoice& in = choices[i];
    Json choice = {{"index", i}};
    if (head_.kind == OpenAiKind::kChat) {
      choice["message"] = MessageOf(in);
    } else {
      choice["text"] = in.text;
    }
    choice["logprobs"] = head_.with_logprobs ? LogprobsOf(head_.kind, in.logprobs) : Json(nullptr);
    choice["finish_reason"] = FinishOf(in.finish, !in.calls.empty());
    // vLLM's member for what ended the output.
    if (in.past_deadline) choice["stop_reason"] = "deadline";
    body["choices"].push_back(std::move(choice));
  }
  body["usage"] = UsageOf(end);
  return Dump(body);
}

std::string OpenAiAnswer::Delta(const ApiDelta& in) {
  Json body = Envelope(head_, true);
  Json choice = {{"index", in.choice}};
  if (calls_.size() <= in.choice) calls_.resize(in.choice + 1);
  Calls& calls = calls_[in.choice];
  if (head_.kind == OpenAiKind::kChat) {
    MessageDelta delta(calls.begun, calls.ended);
    for (const ChatEvent& event : in.delta.events) delta.Add(event);
    choice["delta"] = delta.Take(in.first);
  } else {
    choice["text"] = in.delta.text;
  }
  choice["logprobs"] =
      in.delta.logprobs.empty() ? Json(nullptr) : LogprobsOf(head_.kind, in.delta.logprobs);
  choice["finish_reason"] = FinishOf(in.delta.finish, calls.ended > 0);
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

std::string OpenAiAnswer::Failure(const Status& status) {
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
