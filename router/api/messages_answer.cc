#include "router/api/messages_answer.h"

#include <nlohmann/json.hpp>

#include "router/api/answer_json.h"
#include "router/request_error.h"

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;

// Anthropic's input tokens do not contain those that were cached.
Json UsageOf(const GenerationEnd& end) {
  return {{"input_tokens", end.prompt_tokens - end.account.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", end.account.cached_tokens},
          {"output_tokens", end.generated_tokens}};
}

const char* ErrorType(int http) {
  switch (http) {
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return http < 500 ? "invalid_request_error" : "api_error";
  }
}

// A block of the content without the arguments of a call.
Json ContentBlock(const ApiBlock& block, const std::string& text) {
  switch (block.kind) {
    case ApiBlock::Kind::kReasoning:
      return {{"type", "thinking"}, {"thinking", text}, {"signature", ""}};
    case ApiBlock::Kind::kText:
      return {{"type", "text"}, {"text", text}};
    case ApiBlock::Kind::kCall:
      break;
  }
  return {{"type", "tool_use"}, {"id", block.call_id}, {"name", block.name}};
}

// `json` with one more member, whose value is JSON text.
std::string WithMember(const Json& json, std::string_view name, std::string_view value) {
  std::string out = Dump(json);
  out.pop_back();
  return fmt::format("{},\"{}\":{}}}", out, name, value);
}

// A block of a body. Arguments stay as the model wrote them, as in a stream: a number keeps all of
// its digits.
std::string WholeBlock(const ApiBlock& block) {
  const Json content = ContentBlock(block, block.text);
  if (block.kind != ApiBlock::Kind::kCall) return Dump(content);
  return WithMember(content, "input", block.text);
}

}  // namespace

std::string MessagesError(const Status& status) {
  Json error = {{"type", ErrorType(HttpStatusOf(status))},
                {"message", Shown(baton::Message(status), kMaxErrorBytes)}};
  if (const std::string member = MemberOf(status); !member.empty()) error["param"] = member;
  if (ReasonOf(status) == reason::kThreadUnsupported) {
    error["details"] = {{"error_code", reason::kThreadUnsupported}, {"unsupported", {"thread"}}};
  }
  return Dump({{"type", "error"}, {"error", std::move(error)}});
}

Json MessagesAnswer::Message() const {
  return {{"id", "msg_" + id_},
          {"type", "message"},
          {"role", "assistant"},
          {"model", model_},
          {"stop_reason", nullptr},
          {"stop_sequence", nullptr}};
}

void MessagesAnswer::SetStop(const ApiChoice& choice, Json& out) const {
  const char* reason = "end_turn";
  out["stop_sequence"] = nullptr;
  if (choice.finish == FinishReason::kLength) {
    reason = "max_tokens";
  } else if (choice.HasCall()) {
    reason = "tool_use";
  } else if (choice.stop_index >= 0) {
    reason = "stop_sequence";
    out["stop_sequence"] = stops_[static_cast<size_t>(choice.stop_index)];
  }
  out["stop_reason"] = reason;
}

std::string MessagesAnswer::Body(const std::vector<ApiChoice>& choices, const GenerationEnd& end) {
  const ApiChoice& choice = choices.front();
  Json body = Message();
  SetStop(choice, body);
  body["usage"] = UsageOf(end);
  std::vector<std::string> content;
  for (const ApiBlock& block : choice.output.blocks()) content.push_back(WholeBlock(block));
  return WithMember(body, "content", fmt::format("[{}]", fmt::join(content, ",")));
}

void MessagesAnswer::Event(const char* type, Json event) {
  Json out = {{"type", type}};
  for (auto& [name, value] : event.items()) out[name] = std::move(value);
  events_ += fmt::format("event: {}\ndata: {}\n\n", type, Dump(out));
}

std::string MessagesAnswer::Begin(const GenerationEnd& usage) {
  Json message = Message();
  message["content"] = Json::array();
  message["usage"] = UsageOf(usage);
  message["usage"]["output_tokens"] = 0;
  Event("message_start", {{"message", std::move(message)}});
  return std::exchange(events_, {});
}

std::string MessagesAnswer::Delta(const ApiDelta& delta) {
  Write(delta.choice.output.blocks());
  return std::exchange(events_, {});
}

void MessagesAnswer::OnBegin(size_t number, const ApiBlock& block) {
  Json content = ContentBlock(block, "");
  if (block.kind == ApiBlock::Kind::kCall) content["input"] = Json::object();
  Event("content_block_start", {{"index", number}, {"content_block", std::move(content)}});
}

void MessagesAnswer::OnText(size_t number, const ApiBlock& block, const std::string& text) {
  Json delta;
  switch (block.kind) {
    case ApiBlock::Kind::kReasoning:
      delta = {{"type", "thinking_delta"}, {"thinking", text}};
      break;
    case ApiBlock::Kind::kText:
      delta = {{"type", "text_delta"}, {"text", text}};
      break;
    case ApiBlock::Kind::kCall:
      delta = {{"type", "input_json_delta"}, {"partial_json", text}};
      break;
  }
  Event("content_block_delta", {{"index", number}, {"delta", std::move(delta)}});
}

void MessagesAnswer::OnEnd(size_t number, const ApiBlock&) {
  Event("content_block_stop", {{"index", number}});
}

std::string MessagesAnswer::End(const std::vector<ApiChoice>& choices, const GenerationEnd& end) {
  Json delta = Json::object();
  SetStop(choices.front(), delta);
  Event("message_delta", {{"delta", std::move(delta)}, {"usage", UsageOf(end)}});
  Event("message_stop", Json::object());
  return std::exchange(events_, {});
}

std::string MessagesAnswer::Failure(const std::vector<ApiChoice>&, const Status& status) {
  return fmt::format("event: error\ndata: {}\n\n", MessagesError(status));
}

std::string MessagesAnswer::Error(const Status& status) {
  return MessagesError(status);
}

}  // namespace baton::router
