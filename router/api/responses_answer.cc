#include "router/api/responses_answer.h"

#include <utility>

#include "router/api/answer_json.h"
#include "router/api/openai_answer.h"
#include "router/request_error.h"

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;

Json UsageOf(const GenerationEnd& end) {
  return {{"input_tokens", end.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", end.account.cached_tokens}}},
          {"output_tokens", end.generated_tokens},
          {"output_tokens_details", {{"reasoning_tokens", end.reasoning_tokens}}},
          {"total_tokens", end.prompt_tokens + end.generated_tokens}};
}

Json TextPart(const std::string& text) {
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", Json::array()},
          {"logprobs", Json::array()}};
}

Json ReasoningPart(const std::string& text) {
  return {{"type", "reasoning_text"}, {"text", text}};
}

}  // namespace

ResponsesAnswer::ResponsesAnswer(std::string id, std::string model, int64_t created, Json request)
    : id_(std::move(id)),
      model_(std::move(model)),
      created_(created),
      request_(std::move(request)) {}

// The response without output: the settings of the request and what has no setting.
Json ResponsesAnswer::Response(const char* status) const {
  Json out = {{"id", "resp_" + id_},
              {"object", "response"},
              {"created_at", created_},
              {"status", status},
              {"background", false},
              {"error", nullptr},
              {"incomplete_details", nullptr},
              {"model", model_},
              {"output", Json::array()},
              {"previous_response_id", nullptr},
              {"store", false},
              {"truncation", "disabled"},
              {"usage", nullptr}};
  const std::pair<const char*, Json> settings[] = {{"instructions", nullptr},
                                                   {"max_output_tokens", nullptr},
                                                   {"metadata", Json::object()},
                                                   {"parallel_tool_calls", true},
                                                   {"reasoning", Json::object()},
                                                   {"temperature", nullptr},
                                                   {"text", {{"format", {{"type", "text"}}}}},
                                                   {"tool_choice", "auto"},
                                                   {"tools", Json::array()},
                                                   {"top_p", nullptr},
                                                   {"user", nullptr}};
  for (const auto& [name, otherwise] : settings) {
    const auto given = request_.find(name);
    out[name] = given == request_.end() || given->is_null() ? otherwise : *given;
  }
  return out;
}

Json ResponsesAnswer::Ended(const ApiChoice& choice, const GenerationEnd& end) const {
  const bool cut = choice.finish == FinishReason::kLength;
  Json response = Response(cut ? "incomplete" : "completed");
  if (cut) response["incomplete_details"] = {{"reason", "max_output_tokens"}};
  response["output"] = Output(choice);
  response["usage"] = UsageOf(end);
  return response;
}

std::string ResponsesAnswer::ItemId(size_t number, ApiBlock::Kind kind) const {
  const char* prefix = kind == ApiBlock::Kind::kText   ? "msg"
                       : kind == ApiBlock::Kind::kCall ? "fc"
                                                       : "rs";
  return fmt::format("{}_{}_{}", prefix, id_, number);
}

Json ResponsesAnswer::Item(size_t number, const ApiBlock& block, const char* status) const {
  Json item = {{"id", ItemId(number, block.kind)}};
  switch (block.kind) {
    case ApiBlock::Kind::kReasoning:
      item["type"] = "reasoning";
      item["summary"] = Json::array();
      item["content"] = Json::array();
      if (!block.text.empty()) item["content"].push_back(ReasoningPart(block.text));
      break;
    case ApiBlock::Kind::kText:
      item["type"] = "message";
      item["role"] = "assistant";
      item["content"] = Json::array();
      if (!block.text.empty()) item["content"].push_back(TextPart(block.text));
      break;
    case ApiBlock::Kind::kCall:
      item["type"] = "function_call";
      item["call_id"] = block.call_id;
      item["name"] = block.name;
      item["arguments"] = block.text;
      break;
  }
  item["status"] = status;
  return item;
}

Json ResponsesAnswer::Output(const ApiChoice& choice) const {
  Json output = Json::array();
  for (const ApiBlock& block : choice.output.blocks()) {
    output.push_back(Item(output.size(), block, block.complete ? "completed" : "incomplete"));
  }
  return output;
}

std::string ResponsesAnswer::Body(const std::vector<ApiChoice>& choices, const GenerationEnd& end) {
  return Dump(Ended(choices.front(), end));
}

void ResponsesAnswer::Event(const char* type, Json event) {
  Json out = {{"type", type}, {"sequence_number", sequence_++}};
  for (auto& [name, value] : event.items()) out[name] = std::move(value);
  events_ += fmt::format("event: {}\ndata: {}\n\n", type, Dump(out));
}

std::string ResponsesAnswer::Begin(const GenerationEnd&) {
  const Json response = Response("in_progress");
  Event("response.created", {{"response", response}});
  Event("response.in_progress", {{"response", response}});
  return std::exchange(events_, {});
}

std::string ResponsesAnswer::Delta(const ApiDelta& delta) {
  Write(delta.choice.output.blocks());
  return std::exchange(events_, {});
}

void ResponsesAnswer::OnBegin(size_t number, const ApiBlock& block) {
  ApiBlock empty = block;
  empty.text.clear();
  Event("response.output_item.added",
        {{"output_index", number}, {"item", Item(number, empty, "in_progress")}});
  if (block.kind == ApiBlock::Kind::kCall) return;
  Event("response.content_part.added",
        {{"item_id", ItemId(number, block.kind)},
         {"output_index", number},
         {"content_index", 0},
         {"part", block.kind == ApiBlock::Kind::kText ? TextPart("") : ReasoningPart("")}});
}

void ResponsesAnswer::OnText(size_t number, const ApiBlock& block, const std::string& text) {
  Json event = {{"item_id", ItemId(number, block.kind)}, {"output_index", number}};
  if (block.kind != ApiBlock::Kind::kCall) event["content_index"] = 0;
  event["delta"] = text;
  switch (block.kind) {
    case ApiBlock::Kind::kReasoning:
      return Event("response.reasoning_text.delta", std::move(event));
    case ApiBlock::Kind::kText:
      event["logprobs"] = Json::array();
      return Event("response.output_text.delta", std::move(event));
    case ApiBlock::Kind::kCall:
      return Event("response.function_call_arguments.delta", std::move(event));
  }
}

void ResponsesAnswer::OnEnd(size_t number, const ApiBlock& block) {
  Json event = {{"item_id", ItemId(number, block.kind)}, {"output_index", number}};
  if (block.kind == ApiBlock::Kind::kCall) {
    event["name"] = block.name;
    event["arguments"] = block.text;
    Event("response.function_call_arguments.done", std::move(event));
  } else {
    const bool text = block.kind == ApiBlock::Kind::kText;
    event["content_index"] = 0;
    Json part = event;
    event["text"] = block.text;
    if (text) event["logprobs"] = Json::array();
    Event(text ? "response.output_text.done" : "response.reasoning_text.done", std::move(event));
    part["part"] = text ? TextPart(block.text) : ReasoningPart(block.text);
    Event("response.content_part.done", std::move(part));
  }
  const char* status = block.complete ? "completed" : "incomplete";
  Event("response.output_item.done",
        {{"output_index", number}, {"item", Item(number, block, status)}});
}

std::string ResponsesAnswer::End(const std::vector<ApiChoice>& choices, const GenerationEnd& end) {
  const bool cut = choices.front().finish == FinishReason::kLength;
  Event(cut ? "response.incomplete" : "response.completed",
        {{"response", Ended(choices.front(), end)}});
  return std::exchange(events_, {});
}

std::string ResponsesAnswer::Failure(const std::vector<ApiChoice>& choices, const Status& status) {
  Write(choices.front().output.blocks());
  Json response = Response("failed");
  const char* code = HttpStatusOf(status) == 429 ? "rate_limit_exceeded" : "server_error";
  response["error"] = {{"code", code}, {"message", Shown(Message(status), kMaxErrorBytes)}};
  Event("response.failed", {{"response", std::move(response)}});
  return std::exchange(events_, {});
}

std::string ResponsesAnswer::Error(const Status& status) {
  return OpenAiError(status);
}

}  // namespace baton::router
