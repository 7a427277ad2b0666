// The chat, responses and messages APIs, which share one form of requests and output, without HTTP.
#include <chrono>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/cluster/request_fields.h"
#include "common/cluster/sampling_fields.h"
#include "router/api/messages_answer.h"
#include "router/api/messages_request.h"
#include "router/api/openai_answer.h"
#include "router/api/openai_request.h"
#include "router/api/responses_answer.h"
#include "router/api/responses_request.h"
#include "router/request_error.h"

namespace baton::router {
namespace {

using ::testing::ElementsAre;
using Json = nlohmann::ordered_json;
using Kind = ChatEvent::Kind;

const std::vector<ChatEvent> kOutput = {{Kind::kReasoning, "Hm", ""},
                                        {Kind::kContent, "Look", ""},
                                        {Kind::kCallBegin, "weather", "call_1"},
                                        {Kind::kArguments, "{\"city\": ", ""},
                                        {Kind::kArguments, "\"Bern\"}", ""},
                                        {Kind::kCallEnd, "", ""}};

GenerationEnd Usage() {
  GenerationEnd end;
  end.prompt_tokens = 10;
  end.generated_tokens = 7;
  end.reasoning_tokens = 2;
  end.account.cached_tokens = 4;
  return end;
}

// The choice that `events` give.
ApiChoice ChoiceOf(const std::vector<ChatEvent>& events,
                   FinishReason finish = FinishReason::kStop) {
  GenerationDelta delta;
  delta.events = events;
  delta.finish = finish;
  ApiChoice choice;
  choice.Add(delta);
  return choice;
}

// What `answer` writes when `delta` is added to `choice`.
std::string Write(ApiAnswer& answer, ApiChoice& choice, const GenerationDelta& delta, bool first) {
  choice.Add(delta);
  return answer.Delta(
      {.number = 0, .first = first, .delta = delta, .choice = choice, .usage = Usage()});
}

// The data of all events of a stream in which each event of the output arrives alone.
std::vector<Json> Stream(ApiAnswer& answer,
                         const std::vector<ChatEvent>& events,
                         FinishReason finish = FinishReason::kStop,
                         ApiChoice choice = {}) {
  std::string text = answer.Begin(Usage());
  for (size_t i = 0; i < events.size(); ++i) {
    GenerationDelta delta;
    delta.events = {events[i]};
    if (i + 1 == events.size()) delta.finish = finish;
    text += Write(answer, choice, delta, i == 0);
  }
  text += answer.End({choice}, Usage());
  std::vector<Json> out;
  for (size_t at = text.find("data: "); at != std::string::npos; at = text.find("data: ", at + 1)) {
    const std::string line = text.substr(at + 6, text.find('\n', at) - at - 6);
    if (line != "[DONE]") out.push_back(Json::parse(line));
  }
  return out;
}

std::vector<std::string> TypesOf(const std::vector<Json>& events) {
  std::vector<std::string> types;
  for (const Json& event : events) types.push_back(event["type"]);
  return types;
}

// ---- chat

TEST(ChatAnswer, HasReasoningUnderBothNamesAndCalls) {
  OpenAiAnswer answer({.id = "i", .model = "m"});
  const Json body = Json::parse(answer.Body({ChoiceOf(kOutput)}, Usage()));
  EXPECT_EQ(body["choices"][0]["message"], Json::parse(R"({
    "role": "assistant", "content": "Look", "reasoning": "Hm", "reasoning_content": "Hm",
    "tool_calls": [{"id": "call_1", "type": "function",
                    "function": {"name": "weather", "arguments": "{\"city\": \"Bern\"}"}}]})"));
  EXPECT_EQ(body["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(body["usage"]["completion_tokens_details"]["reasoning_tokens"], 2);
}

TEST(ChatAnswer, StreamsACallByItsIndex) {
  OpenAiAnswer answer({.id = "i", .model = "m", .continuous_usage = true});
  std::vector<ChatEvent> events = kOutput;
  events.insert(events.end(),
                {{Kind::kCallBegin, "now", "call_2"},
                 {Kind::kArguments, "{}", ""},
                 {Kind::kCallEnd, "", ""}});
  const std::vector<Json> stream = Stream(answer, events);
  ASSERT_EQ(stream.size(), 6u);
  const auto delta = [&](size_t i) { return stream[i]["choices"][0]["delta"]; };
  EXPECT_EQ(delta(0)["reasoning_content"], "Hm");
  EXPECT_EQ(delta(1), Json::parse(R"({"content": "Look"})"));
  EXPECT_EQ(delta(2)["tool_calls"], Json::parse(R"([{"index": 0, "id": "call_1",
    "type": "function", "function": {"name": "weather", "arguments": "{\"city\": "}}])"));
  EXPECT_EQ(delta(3)["tool_calls"],
            Json::parse(R"([{"index": 0, "function": {"arguments": "\"Bern\""}}])"));
  EXPECT_EQ(delta(4)["tool_calls"],
            Json::parse(R"([{"index": 0, "function": {"arguments": "}"}}])"));
  EXPECT_EQ(delta(5)["tool_calls"][0]["index"], 1);
  EXPECT_EQ(delta(5)["tool_calls"][0]["function"]["arguments"], "{}");
  EXPECT_EQ(stream.back()["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(stream[0]["usage"]["prompt_tokens"], 10);
}

TEST(ChatAnswer, SaysThatTheDeadlineCutItOff) {
  OpenAiAnswer answer({.id = "i", .model = "m"});
  ApiChoice choice = ChoiceOf(kOutput, FinishReason::kNone);
  choice.EndAtDeadline();
  const Json body = Json::parse(answer.Body({choice}, Usage()));
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["choices"][0]["stop_reason"], "deadline");
}

// ---- responses

StatusOr<ApiRequest> Responses(const std::string& body) {
  return ReadResponsesRequest(Json::parse(body));
}

TEST(ResponsesRequest, ItemsBecomeTurns) {
  const auto request = Responses(R"({"model": "m", "instructions": "Be brief.",
    "input": [{"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
              {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm"}]},
              {"type": "message", "role": "assistant",
               "content": [{"type": "output_text", "text": "Look"}]},
              {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
              {"type": "function_call_output", "call_id": "c1", "output": "rain"},
              {"role": "developer", "content": "In French."}],
    "tools": [{"type": "function", "name": "weather", "parameters": {"type": "object"}}],
    "reasoning": {"effort": "low"}, "max_output_tokens": 9, "temperature": 0, "stream": true})");
  ASSERT_TRUE(request.ok()) << request.status();
  const auto& chat = std::get<ChatInput>(request->inputs[0]);
  ASSERT_EQ(chat.turns.size(), 5u);
  EXPECT_EQ(chat.turns[0].role, "system");
  EXPECT_EQ(chat.turns[1].content, "Weather?");
  EXPECT_EQ(chat.turns[2].role, "assistant");
  EXPECT_EQ(chat.turns[2].content, "Look");
  EXPECT_EQ(Json::parse(chat.turns[2].extra_json),
            Json::parse(R"({"reasoning_content": "Hm", "tool_calls": [{"id": "c1",
              "type": "function", "function": {"name": "weather", "arguments": "{}"}}]})"));
  EXPECT_EQ(chat.turns[3].role, "tool");
  EXPECT_EQ(Json::parse(chat.turns[3].extra_json),
            Json::parse(R"({"tool_call_id": "c1", "name": "weather"})"));
  EXPECT_EQ(chat.turns[4].role, "developer");
  EXPECT_EQ(Json::parse(chat.tools_json), Json::parse(R"([{"type": "function",
    "function": {"name": "weather", "parameters": {"type": "object"}}}])"));
  EXPECT_EQ(chat.reasoning_effort, "low");
  EXPECT_EQ(request->generation.max_tokens, 9);
  EXPECT_EQ(request->generation.sampling.temperature, 0.0f);
  EXPECT_TRUE(request->stream);
}

TEST(ResponsesRequest, LogprobsAreIncludedByEitherMember) {
  EXPECT_EQ(Responses(R"({"input": "x", "top_logprobs": 3})")->generation.top_logprobs, 3);
  const auto included = Responses(R"({"input": "x", "include": ["message.output_text.logprobs"]})");
  EXPECT_EQ(included->generation.top_logprobs, 0);
  EXPECT_TRUE(included->blocks.logprobs);
  EXPECT_FALSE(Responses(R"({"input": "x"})")->generation.top_logprobs.has_value());
}

// Load generators send vLLM's members, also null, to get answers of a certain length.
TEST(ResponsesRequest, AnswersMayIgnoreTheEndOfTheText) {
  const auto request =
      Responses(R"({"input": "x", "max_output_tokens": 8, "stop": null, "ignore_eos": true})");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_TRUE(request->generation.ignore_eos);
  EXPECT_FALSE(Responses(R"({"input": "x"})")->generation.ignore_eos);
}

TEST(ResponsesRequest, RefusesByName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", "input"},
      {R"({"input": []})", "input"},
      {R"({"input": [1]})", "input[0]"},
      {R"({"input": [{"role": "user"}]})", "input[0].content"},
      {R"({"input": [{"role": "martian", "content": "x"}]})", "input[0].role"},
      {R"({"input": [{"type": "item_reference", "id": "x"}]})", "input[0].type"},
      {R"({"input": [{"role": "user", "content": [{"type": "input_image"}]}]})",
       "input[0].content[0]"},
      {R"({"input": "x", "previous_response_id": "resp_1"})", "previous_response_id"},
      {R"({"input": "x", "conversation": "c"})", "conversation"},
      {R"({"input": "x", "background": true})", "background"},
      {R"({"input": "x", "tools": [{"type": "web_search"}]})", "tools[0].type"},
      {R"({"input": "x", "tool_choice": "required"})", "tool_choice"},
      {R"({"input": "x", "text": {"format": {"type": "grammar"}}})", "text.format.type"},
      {R"({"input": "x", "truncation": "some"})", "truncation"},
      {R"({"input": "x", "include": ["file_search_call.results"]})", "include"},
      {R"({"input": "x", "reasoning": {"budget": 1}})", "reasoning.budget"},
      {R"({"input": "x", "max_tokens": 5})", "max_tokens"}};
  for (const auto& [body, member] : cases) {
    const Status status = Responses(body).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << body;
    EXPECT_EQ(MemberOf(status), member) << body;
  }
  EXPECT_TRUE(Responses(R"({"input": "x", "previous_response_id": null, "background": false,
    "text": {"format": {"type": "text"}, "verbosity": "low"}, "truncation": "auto"})")
                  .ok());
}

ResponsesAnswer NewResponses() {
  return {"1", "m", 5, Json::parse(R"({"input": "x", "temperature": 0.5})")};
}

TEST(ResponsesAnswer, HasItemsForReasoningTextAndCalls) {
  ResponsesAnswer answer = NewResponses();
  const Json body = Json::parse(answer.Body({ChoiceOf(kOutput)}, Usage()));
  EXPECT_EQ(body["status"], "completed");
  EXPECT_EQ(body["temperature"], 0.5);
  ASSERT_EQ(body["output"].size(), 3u);
  EXPECT_EQ(body["output"][0]["content"][0]["text"], "Hm");
  EXPECT_EQ(body["output"][1]["content"][0]["text"], "Look");
  EXPECT_EQ(body["output"][2]["arguments"], "{\"city\": \"Bern\"}");
  EXPECT_EQ(body["output"][2]["call_id"], "call_1");
  EXPECT_EQ(body["usage"]["input_tokens_details"]["cached_tokens"], 4);
  EXPECT_EQ(body["usage"]["output_tokens_details"]["reasoning_tokens"], 2);
  const Json cut = Json::parse(answer.Body({ChoiceOf(kOutput, FinishReason::kLength)}, Usage()));
  EXPECT_EQ(cut["status"], "incomplete");
  EXPECT_EQ(cut["incomplete_details"]["reason"], "max_output_tokens");
}

TEST(ResponsesAnswer, AnItemThatWasCutIsIncompleteInBothForms) {
  const std::vector<ChatEvent> events = {{Kind::kReasoning, "Hm", ""}, {Kind::kContent, "So", ""}};
  ResponsesAnswer answer = NewResponses();
  const Json cut =
      Json::parse(answer.Body({ChoiceOf(events, FinishReason::kLength)}, Usage()))["output"];
  EXPECT_EQ(cut[0]["status"], "completed");
  EXPECT_EQ(cut[1]["status"], "incomplete");
  ResponsesAnswer other = NewResponses();
  EXPECT_EQ(Stream(other, events, FinishReason::kLength).back()["response"]["output"], cut);
}

TEST(ResponsesAnswer, StreamsTheBeginAndEndOfEachItem) {
  ResponsesAnswer answer = NewResponses();
  const std::vector<Json> events = Stream(answer, kOutput);
  EXPECT_THAT(TypesOf(events),
              ElementsAre("response.created",
                          "response.in_progress",
                          "response.output_item.added",
                          "response.content_part.added",
                          "response.reasoning_text.delta",
                          "response.reasoning_text.done",
                          "response.content_part.done",
                          "response.output_item.done",
                          "response.output_item.added",
                          "response.content_part.added",
                          "response.output_text.delta",
                          "response.output_text.done",
                          "response.content_part.done",
                          "response.output_item.done",
                          "response.output_item.added",
                          "response.function_call_arguments.delta",
                          "response.function_call_arguments.delta",
                          "response.function_call_arguments.delta",
                          "response.function_call_arguments.done",
                          "response.output_item.done",
                          "response.completed"));
  for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i]["sequence_number"], i);
  EXPECT_EQ(events[19]["item"]["arguments"], "{\"city\": \"Bern\"}");
  ResponsesAnswer other = NewResponses();
  const Json body = Json::parse(other.Body({ChoiceOf(kOutput)}, Usage()));
  EXPECT_EQ(events.back()["response"], body);
}

TEST(ResponsesAnswer, AFailureEndsTheStreamWithItsError) {
  ResponsesAnswer answer = NewResponses();
  answer.Begin(Usage());
  GenerationDelta delta;
  delta.events = {{Kind::kContent, "a", ""}};
  ApiChoice choice;
  Write(answer, choice, delta, true);
  choice.output.End(/*cut=*/true);
  const std::string text = answer.Failure({choice}, Status(StatusCode::kInternal, "lost"));
  EXPECT_THAT(text, ::testing::HasSubstr("event: response.output_item.done\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("event: response.failed\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("\"message\":\"lost\""));
}

// ---- messages

StatusOr<ApiRequest> Messages(const std::string& body) {
  return ReadMessagesRequest(MessagesKind::kCreate, Json::parse(body));
}

TEST(MessagesRequest, BlocksBecomeTurns) {
  const auto request = Messages(R"({"model": "m", "max_tokens": 9, "system": [
      {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "messages": [{"role": "user", "content": "Weather?"},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm", "signature": ""},
        {"type": "text", "text": "Look"},
        {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Bern"}}]},
      {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "rain"}]},
        {"type": "text", "text": "So?"}]}],
    "tools": [{"name": "weather", "description": "d", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": true},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "stop_sequences": ["END"], "top_k": 5, "metadata": {"user_id": "u"}})");
  ASSERT_TRUE(request.ok()) << request.status();
  const auto& chat = std::get<ChatInput>(request->inputs[0]);
  ASSERT_EQ(chat.turns.size(), 5u);
  EXPECT_EQ(chat.turns[0].role, "system");
  EXPECT_EQ(chat.turns[2].content, "Look");
  EXPECT_EQ(Json::parse(chat.turns[2].extra_json)["tool_calls"][0]["function"]["arguments"],
            "{\"city\":\"Bern\"}");
  EXPECT_EQ(chat.turns[3].role, "tool");
  EXPECT_EQ(chat.turns[3].content, "rain");
  EXPECT_EQ(chat.turns[4].content, "So?");
  EXPECT_EQ(Json::parse(chat.tools_json)[0]["function"]["parameters"],
            Json::parse(R"({"type": "object"})"));
  EXPECT_EQ(chat.thinking, true);
  EXPECT_EQ(chat.arguments_json, R"({"thinking_budget":1024})");
  EXPECT_TRUE(request->blocks.whole_calls);
  EXPECT_TRUE(request->generation.chat_output->one_call);
  EXPECT_EQ(request->generation.stop, std::vector<std::string>{"END"});
  EXPECT_FALSE(chat.continue_final_message);
}

TEST(MessagesRequest, ALastTurnOfTheAssistantIsContinued) {
  const auto request = Messages(R"({"max_tokens": 1, "messages": [
    {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "So"}]})");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_TRUE(std::get<ChatInput>(request->inputs[0]).continue_final_message);
}

TEST(MessagesRequest, RefusesByName) {
  const std::string user = R"("messages": [{"role": "user", "content": "x"}])";
  const std::pair<std::string, const char*> cases[] = {
      {R"({"max_tokens": 1})", "messages"},
      {"{" + user + "}", "max_tokens"},
      {R"({"max_tokens": 1, "messages": [{"role": "tool", "content": "x"}]})", "messages[0].role"},
      {R"({"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "image"}]}]})",
       "messages[0].content[0].type"},
      {R"({"max_tokens": 1, "mcp_servers": [], )" + user + "}", "mcp_servers"},
      {R"({"max_tokens": 1, "tool_choice": {"type": "any"}, )" + user + "}", "tool_choice"},
      {R"({"max_tokens": 1, "tools": [{"type": "bash_20250124", "name": "bash"}], )" + user + "}",
       "tools[0].type"},
      {R"({"max_tokens": 1, "thinking": {"type": "much"}, )" + user + "}", "thinking.type"},
      {R"({"max_tokens": 1, "stop_sequences": "x", )" + user + "}", "stop_sequences"}};
  for (const auto& [body, member] : cases) {
    const Status status = Messages(body).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << body;
    EXPECT_EQ(MemberOf(status), member) << body;
  }
  EXPECT_TRUE(ReadMessagesRequest(MessagesKind::kCountTokens, Json::parse("{" + user + "}")).ok());
}

TEST(MessagesAnswer, HasBlocksForThinkingTextAndCalls) {
  MessagesAnswer answer("1", "m", {"END"});
  const Json body = Json::parse(answer.Body({ChoiceOf(kOutput)}, Usage()));
  EXPECT_EQ(body["content"], Json::parse(R"([
    {"type": "thinking", "thinking": "Hm", "signature": ""}, {"type": "text", "text": "Look"},
    {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Bern"}}])"));
  EXPECT_EQ(body["stop_reason"], "tool_use");
  EXPECT_EQ(body["usage"]["input_tokens"], 6);
  EXPECT_EQ(body["usage"]["cache_read_input_tokens"], 4);
  ApiChoice stopped = ChoiceOf({{Kind::kContent, "a", ""}});
  stopped.stop_index = 0;
  const Json stop = Json::parse(answer.Body({stopped}, Usage()));
  EXPECT_EQ(stop["stop_reason"], "stop_sequence");
  EXPECT_EQ(stop["stop_sequence"], "END");
  const Json cut = Json::parse(answer.Body({ChoiceOf({}, FinishReason::kLength)}, Usage()));
  EXPECT_EQ(cut["stop_reason"], "max_tokens");
}

TEST(MessagesAnswer, StreamsTheBeginAndEndOfEachBlock) {
  MessagesAnswer answer("1", "m", {});
  const std::vector<Json> events =
      Stream(answer, kOutput, FinishReason::kStop, {.output = OutputBlocks({.whole_calls = true})});
  EXPECT_THAT(TypesOf(events),
              ElementsAre("message_start",
                          "content_block_start",
                          "content_block_delta",
                          "content_block_stop",
                          "content_block_start",
                          "content_block_delta",
                          "content_block_stop",
                          "content_block_start",
                          "content_block_delta",
                          "content_block_stop",
                          "message_delta",
                          "message_stop"));
  EXPECT_EQ(events[8]["delta"],
            Json::parse(R"({"type": "input_json_delta", "partial_json": "{\"city\": \"Bern\"}"})"));
  EXPECT_EQ(events[10]["delta"]["stop_reason"], "tool_use");
  EXPECT_EQ(events[10]["usage"]["output_tokens"], 7);
}

// Upon this error Anthropic's tool runner goes on without a thread.
TEST(MessagesRequest, AThreadIsRefusedInTheWordsThatClientsKnow) {
  const Status status = Messages(R"({"max_tokens": 1, "thread": {"type": "create"},
                   "messages": [{"role": "user", "content": "x"}]})")
                            .status();
  EXPECT_EQ(MemberOf(status), "thread");
  const Json error = Json::parse(MessagesError(status))["error"];
  EXPECT_EQ(error["type"], "invalid_request_error");
  EXPECT_EQ(error["details"], Json::parse(R"({"error_code": "thread_unsupported_request",
                                              "unsupported": ["thread"]})"));
}

TEST(MessagesAnswer, ErrorsHaveAnthropicsForm) {
  const Json error = Json::parse(MessagesError(InvalidMember("max_tokens", "missing")));
  EXPECT_EQ(error, Json::parse(R"({"type": "error", "error": {"type": "invalid_request_error",
    "message": "missing", "param": "max_tokens"}})"));
  EXPECT_EQ(Json::parse(MessagesError(Status(StatusCode::kUnavailable, "x")))["error"]["type"],
            "overloaded_error");
}

// What each HTTP API reads from its smallest request with `members`.
std::vector<GenerationRequest> ReadByEveryApi(const Json& members) {
  const Json turns = Json::parse(R"([{"role": "user", "content": "x"}])");
  const auto with = [&](Json body) {
    body.update(members);
    return body;
  };
  const std::vector<StatusOr<ApiRequest>> read = {
      ReadOpenAiRequest(OpenAiKind::kChat, with({{"model", "m"}, {"messages", turns}})),
      ReadOpenAiRequest(OpenAiKind::kCompletion, with({{"model", "m"}, {"prompt", "x"}})),
      ReadResponsesRequest(with({{"model", "m"}, {"input", "x"}})),
      ReadMessagesRequest(MessagesKind::kCreate,
                          with({{"model", "m"}, {"max_tokens", 1}, {"messages", turns}}))};
  std::vector<GenerationRequest> requests;
  for (const StatusOr<ApiRequest>& one : read) {
    EXPECT_TRUE(one.ok()) << members << one.status();
    if (one.ok()) requests.push_back(one->generation);
  }
  return requests;
}

TEST(SharedMembers, EveryApiReadsTheFieldsOfTheTables) {
  for (const SamplingField& field : kSamplingFields) {
    for (const GenerationRequest& request :
         ReadByEveryApi({{std::string(field.name), field.range.high}})) {
      EXPECT_EQ(request.sampling.*field.override_value, field.range.high) << field.name;
    }
  }
  for (const PassedField& field : kPassedFields) {
    if (!field.stated) continue;
    const bool number = std::holds_alternative<int32_t PassedOptions::*>(field.value);
    const Json value = number ? Json(-5) : Json("text");
    for (const GenerationRequest& request : ReadByEveryApi({{std::string(field.name), value}})) {
      std::visit([&](const auto member) { EXPECT_EQ(Json(request.*member), value) << field.name; },
                 field.value);
    }
  }
  for (const GenerationRequest& request :
       ReadByEveryApi({{"top_k", -1}, {"logit_bias", {{"3", 2}}}, {"timeout_ms", 9}})) {
    EXPECT_EQ(request.sampling.top_k, 0);
    EXPECT_EQ(request.sampling.logit_bias.size(), 1U);
    EXPECT_EQ(request.timeout, std::chrono::milliseconds(9));
  }
}

TEST(SharedMembers, TheSeedMinusOneMeansNoSeed) {
  for (const GenerationRequest& request : ReadByEveryApi({{"seed", -1}})) {
    EXPECT_FALSE(request.sampling.seed.has_value());
  }
  for (const GenerationRequest& request : ReadByEveryApi({{"seed", -2}})) {
    EXPECT_EQ(request.sampling.seed, static_cast<uint64_t>(-2));
  }
  for (const GenerationRequest& request : ReadByEveryApi({{"seed", 0}})) {
    EXPECT_EQ(request.sampling.seed, 0U);
  }
}

}  // namespace
}  // namespace baton::router
