// A streamed answer is the same as one that is not streamed: every golden output of
// tests/data/chat_format, in all chat APIs, added up as the official clients do.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/mapped_file.h"
#include "router/api/messages_answer.h"
#include "router/api/openai_answer.h"
#include "router/api/responses_answer.h"
#include "tests/support/chat_goldens.h"

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;
using Kind = ChatEvent::Kind;
using Events = std::vector<ChatEvent>;

enum class Api : uint8_t { kChat, kResponses, kMessages };

std::unique_ptr<ApiAnswer> AnswerOf(Api api) {
  if (api == Api::kChat) return std::make_unique<OpenAiAnswer>(OpenAiHead{.id = "i"});
  if (api == Api::kMessages) {
    return std::make_unique<MessagesAnswer>("i", "m", std::vector<std::string>{});
  }
  return std::make_unique<ResponsesAnswer>("i", "m", 5, Json::object());
}

ApiChoice ChoiceFor(Api api) {
  return {.output = OutputBlocks(
              {.whole_calls = api == Api::kMessages, .logprobs = api == Api::kResponses})};
}

GenerationEnd Usage() {
  GenerationEnd end;
  end.prompt_tokens = 10;
  end.generated_tokens = 7;
  return end;
}

// The body of the answer whose output is `parts`.
Json BodyOf(Api api, const std::vector<Events>& parts, FinishReason finish) {
  ApiChoice choice = ChoiceFor(api);
  for (size_t i = 0; i < parts.size(); ++i) {
    GenerationDelta delta;
    delta.events = parts[i];
    if (i + 1 == parts.size()) delta.finish = finish;
    choice.Add(delta);
  }
  return Json::parse(AnswerOf(api)->Body({choice}, Usage()));
}

// The data of the events of the stream in which each of `parts` arrives alone.
std::vector<Json> StreamOf(Api api, const std::vector<Events>& parts, FinishReason finish) {
  const std::unique_ptr<ApiAnswer> answer = AnswerOf(api);
  ApiChoice choice = ChoiceFor(api);
  std::string text = answer->Begin(Usage());
  for (size_t i = 0; i < parts.size(); ++i) {
    GenerationDelta delta;
    delta.events = parts[i];
    if (i + 1 == parts.size()) delta.finish = finish;
    choice.Add(delta);
    text += answer->Delta(
        {.number = 0, .first = i == 0, .delta = delta, .choice = choice, .usage = Usage()});
  }
  text += answer->End({choice}, Usage());
  std::vector<Json> out;
  for (size_t at = text.find("data: "); at != std::string::npos; at = text.find("data: ", at + 1)) {
    const std::string line = text.substr(at + 6, text.find('\n', at) - at - 6);
    EXPECT_TRUE(line.find("\xEF\xBF\xBD") == std::string::npos) << line;
    if (line != "[DONE]") out.push_back(Json::parse(line));
  }
  return out;
}

void Append(Json& to, const Json& text) {
  to.is_null() ? void(to = text) : void(to.get_ref<std::string&>() += text.get<std::string>());
}

// openai's accumulate_delta: texts are joined, calls are added up by their index.
Json AddUpChat(const std::vector<Json>& chunks) {
  Json choice;
  for (const Json& chunk : chunks) {
    const Json& one = chunk["choices"][0];
    choice["index"] = one["index"];
    Json& message = choice["message"];
    for (const auto& [name, value] : one["delta"].items()) {
      if (name != "tool_calls") {
        if (value.is_null()) {
          message.emplace(name, nullptr);
        } else {
          Append(message[name], value);
        }
        continue;
      }
      for (Json call : value) {
        Json& calls = message["tool_calls"];
        const size_t index = call["index"];
        call.erase("index");
        if (index == calls.size()) {
          calls.push_back(call);
        } else {
          Append(calls.at(index)["function"]["arguments"], call["function"]["arguments"]);
        }
      }
    }
    choice["logprobs"] = nullptr;
    choice["finish_reason"] = one["finish_reason"];
  }
  return choice;
}

// anthropic's accumulate_event.
Json AddUpMessages(const std::vector<Json>& events) {
  Json message;
  std::vector<std::string> inputs;
  for (const Json& event : events) {
    const std::string type = event["type"];
    if (type == "message_start") message = event["message"];
    if (type == "content_block_start") {
      EXPECT_EQ(event["index"], message["content"].size());
      message["content"].push_back(event["content_block"]);
      inputs.emplace_back();
    } else if (type == "content_block_delta") {
      Json& block = message["content"].at(event["index"].get<size_t>());
      const Json& delta = event["delta"];
      if (delta["type"] == "text_delta") Append(block["text"], delta["text"]);
      if (delta["type"] == "thinking_delta") Append(block["thinking"], delta["thinking"]);
      if (delta["type"] == "input_json_delta") {
        block["input"] = Json::parse(inputs.at(event["index"].get<size_t>()) +=
                                     delta["partial_json"].get<std::string>());
      }
    } else if (type == "message_delta") {
      message.update(event["delta"]);
      message["usage"] = event["usage"];
    }
  }
  return message;
}

// The items of /v1/responses as their deltas state them.
Json AddUpItems(const std::vector<Json>& events) {
  Json items = Json::array();
  for (const Json& event : events) {
    const std::string type = event["type"];
    if (type == "response.output_item.added") items.push_back(event["item"]);
    if (type == "response.content_part.added") items.back()["content"].push_back(event["part"]);
    if (type.ends_with("text.delta")) {
      Append(items.back()["content"][0]["text"], event["delta"]);
      for (const Json& one : event.value("logprobs", Json::array())) {
        items.back()["content"][0]["logprobs"].push_back(one);
      }
    }
    if (type.ends_with("arguments.delta")) Append(items.back()["arguments"], event["delta"]);
    if (type != "response.output_item.done") continue;
    items.back()["status"] = event["item"]["status"];
    EXPECT_EQ(items.back(), event["item"]);
  }
  return items;
}

// Members in any order.
nlohmann::json Sorted(const Json& json) {
  return nlohmann::json::parse(json.dump());
}

// What the clients of `api` see of the body and of the stream is the same. Returns the body.
Json ExpectEqual(Api api, const std::vector<Events>& parts, FinishReason finish) {
  Json body = BodyOf(api, parts, finish);
  const std::vector<Json> stream = StreamOf(api, parts, finish);
  if (api == Api::kChat) {
    EXPECT_EQ(Sorted(AddUpChat(stream)), Sorted(body["choices"][0]));
  } else if (api == Api::kMessages) {
    EXPECT_EQ(Sorted(AddUpMessages(stream)), Sorted(body));
  } else {
    EXPECT_EQ(stream.back()["response"], body);
    EXPECT_EQ(Sorted(AddUpItems(stream)), Sorted(body["output"]));
  }
  return body;
}

bool IsWhole(const std::string& arguments) {
  return Json::accept(arguments);
}

// The calls of a body that clients may run: those with whole arguments.
size_t CountWholeCalls(Api api, const Json& body) {
  size_t count = 0;
  if (api == Api::kChat) {
    const Json& message = body["choices"][0]["message"];
    if (!message.contains("tool_calls")) return 0;
    for (const Json& call : message["tool_calls"]) count += IsWhole(call["function"]["arguments"]);
  } else if (api == Api::kMessages) {
    for (const Json& block : body["content"]) count += block["type"] == "tool_use" ? 1 : 0;
  } else {
    for (const Json& item : body["output"]) {
      if (item["type"] != "function_call") continue;
      EXPECT_EQ(item["status"] == "completed", IsWhole(item["arguments"])) << item;
      count += IsWhole(item["arguments"]);
    }
  }
  return count;
}

Events EventsOf(const Json& golden) {
  static const std::map<std::string, Kind> kinds = {{"content", Kind::kContent},
                                                    {"reasoning", Kind::kReasoning},
                                                    {"call", Kind::kCallBegin},
                                                    {"arguments", Kind::kArguments},
                                                    {"end", Kind::kCallEnd},
                                                    {"failed", Kind::kCallFailed}};
  Events events;
  for (const Json& one : golden) {
    ChatEvent& event = events.emplace_back();
    event.kind = kinds.at(one[0]);
    if (one.size() > 1) event.text = one[1];
    if (event.kind == Kind::kCallBegin) event.id = fmt::format("call_{}", events.size());
  }
  return events;
}

// The events in one part; in a part each; and with their texts in parts of one byte.
std::vector<std::vector<Events>> Divisions(const Events& events) {
  if (events.empty()) return {{Events()}};
  std::vector<Events> single;
  std::vector<Events> bytes;
  for (const ChatEvent& event : events) {
    single.push_back({event});
    const bool divides = event.kind == Kind::kContent || event.kind == Kind::kReasoning ||
                         event.kind == Kind::kArguments;
    if (!divides) {
      bytes.push_back({event});
      continue;
    }
    for (const char byte : event.text) bytes.push_back({{event.kind, std::string(1, byte), ""}});
  }
  return {{events}, single, bytes};
}

void ExpectEqualInAllApis(const Events& events) {
  const auto ends = std::ranges::count(events, Kind::kCallEnd, &ChatEvent::kind);
  for (const std::vector<Events>& parts : Divisions(events)) {
    for (const FinishReason finish : {FinishReason::kStop, FinishReason::kLength}) {
      for (const Api api : {Api::kChat, Api::kResponses, Api::kMessages}) {
        SCOPED_TRACE(fmt::format("{} parts, API {}", parts.size(), static_cast<int>(api)));
        const Json body = ExpectEqual(api, parts, finish);
        EXPECT_EQ(body, BodyOf(api, {events}, finish));
        EXPECT_EQ(CountWholeCalls(api, body), ends) << body;
      }
    }
  }
}

class StreamedGoldens : public ::testing::TestWithParam<std::string> {};

TEST_P(StreamedGoldens, AreTheSameAsTheBody) {
  const std::string path = fmt::format("{}/chat_format/{}.json", BATON_TEST_DATA, GetParam());
  const Json file = Json::parse(ReadFile(path).value());
  ASSERT_FALSE(file["cases"].empty());
  for (const Json& one : file["cases"]) {
    SCOPED_TRACE(one["name"]);
    ExpectEqualInAllApis(EventsOf(one["events"]));
  }
}

INSTANTIATE_TEST_SUITE_P(AllFormats,
                         StreamedGoldens,
                         ::testing::ValuesIn(ChatGoldens()),
                         [](const auto& test) { return test.param; });

TEST(StreamedAnswer, IsTheSameForOutputsThatNoGoldenHas) {
  const Events call = {{Kind::kCallBegin, "q", "call_1"}, {Kind::kArguments, "{\"a\": 7}", ""}};
  const auto with = [&](Events more) {
    more.insert(more.begin(), call.begin(), call.end());
    return more;
  };
  ExpectEqualInAllApis({});
  ExpectEqualInAllApis({{Kind::kReasoning, "Hm", ""}});
  ExpectEqualInAllApis(with({{Kind::kCallFailed, "<tool_call>{\"a\": 7}<", ""}}));
  // Half a character at the end of the call that failed.
  ExpectEqualInAllApis(with({{Kind::kCallFailed, "<tool_call>{\"a\": 7}\xEF", ""},
                             {Kind::kContent, "\xBC\x8C</tool_call>", ""}}));
  // Content inside of a call.
  ExpectEqualInAllApis(with({{Kind::kContent, "Look", ""},
                             {Kind::kArguments, " ", ""},
                             {Kind::kCallEnd, "", ""},
                             {Kind::kCallBegin, "now", "call_2"},
                             {Kind::kArguments, "{}", ""},
                             {Kind::kCallEnd, "", ""}}));
}

// The calls and contents of a chat whose output is `events`.
Json MessageOf(const Events& events, FinishReason finish) {
  return BodyOf(Api::kChat, {events}, finish)["choices"][0];
}

TEST(FailedCall, IsShownAsFarAsItWasSentAndNotRepeated) {
  const Events events = {{Kind::kCallBegin, "q", "call_1"},
                         {Kind::kArguments, "{\"a\": 7}", ""},
                         {Kind::kCallFailed, "<tool_call>{\"a\": 7}\xEF", ""},
                         {Kind::kContent, "\xBC\x8C!", ""}};
  const Json chat = MessageOf(events, FinishReason::kStop);
  EXPECT_EQ(chat["message"]["tool_calls"][0]["function"]["arguments"], "{\"a\": 7]");
  EXPECT_EQ(chat["message"]["content"], "，!");
  EXPECT_EQ(chat["finish_reason"], "stop");
  const Json messages = BodyOf(Api::kMessages, {events}, FinishReason::kStop);
  EXPECT_EQ(messages["content"],
            Json::parse(R"([{"type": "text", "text": "<tool_call>{\"a\": 7}，!"}])"));
  EXPECT_EQ(messages["stop_reason"], "end_turn");
}

TEST(FailedCall, IsTextWhenNothingButItsFirstBraceIsKnown) {
  const Json chat = MessageOf({{Kind::kCallBegin, "q", "call_1"},
                               {Kind::kArguments, "{", ""},
                               {Kind::kCallFailed, "<function=q>oh", ""}},
                              FinishReason::kStop);
  EXPECT_EQ(chat["message"], Json::parse(R"({"role": "assistant", "content": "<function=q>oh"})"));
}

TEST(FailedCall, IsAPartialCallWhenTheLengthCutsIt) {
  const Events events = {{Kind::kCallBegin, "q", "call_1"},
                         {Kind::kArguments, "{\"a\": ", ""},
                         {Kind::kCallFailed, "<tool_call>{\"a\": ", ""}};
  const Json chat = MessageOf(events, FinishReason::kLength);
  EXPECT_EQ(chat["message"]["tool_calls"][0]["function"]["arguments"], "{\"a\": ");
  EXPECT_TRUE(chat["message"]["content"].is_null());
  EXPECT_EQ(chat["finish_reason"], "length");
  const Json responses = BodyOf(Api::kResponses, {events}, FinishReason::kLength);
  EXPECT_EQ(responses["status"], "incomplete");
  EXPECT_EQ(responses["output"][0]["type"], "function_call");
  EXPECT_EQ(responses["output"][0]["status"], "incomplete");
  const Json messages = BodyOf(Api::kMessages, {events}, FinishReason::kLength);
  EXPECT_EQ(messages["content"][0]["type"], "text");
  EXPECT_EQ(messages["stop_reason"], "max_tokens");
}

// Tokens of the call, of markers between blocks and of the end belong to no text.
TEST(StreamedAnswer, TextsOfResponsesHaveTheLogprobsOfTheirTokens) {
  const auto part = [](const Events& events, const std::vector<std::pair<int, size_t>>& tokens) {
    GenerationDelta delta;
    delta.events = events;
    for (const auto& [id, arrived] : tokens) {
      delta.logprobs.push_back({0, {id, -0.5f, std::to_string(id)}, {}, arrived});
    }
    return delta;
  };
  const std::vector<GenerationDelta> parts = {
      part({{Kind::kReasoning, "Hm", ""}}, {{1, 1}, {2, 1}}),
      part({{Kind::kContent, "Lo", ""}, {Kind::kContent, "ok", ""}}, {{3, 1}, {4, 2}}),
      part({}, {{5, 0}}),
      part({{Kind::kCallBegin, "q", "call_1"}}, {{6, 1}}),
      part({{Kind::kArguments, "{}", ""}, {Kind::kCallEnd, "", ""}}, {{7, 2}}),
      part({{Kind::kContent, "!", ""}}, {{8, 0}, {9, 1}})};
  const std::unique_ptr<ApiAnswer> answer = AnswerOf(Api::kResponses);
  ApiChoice choice = ChoiceFor(Api::kResponses);
  std::string text = answer->Begin(Usage());
  for (const GenerationDelta& delta : parts) {
    choice.Add(delta);
    text += answer->Delta(
        {.number = 0, .first = false, .delta = delta, .choice = choice, .usage = Usage()});
  }
  choice.output.End(/*cut=*/false);
  const Json output = Json::parse(answer->Body({choice}, Usage()))["output"];
  const auto tokens = [](const Json& item) {
    std::string out;
    for (const Json& one : item["content"][0]["logprobs"]) out += one["token"];
    return out;
  };
  EXPECT_EQ(tokens(output[1]), "34");
  EXPECT_EQ(tokens(output[3]), "9");
  EXPECT_NE(text.find(R"("delta":"Look","logprobs":[{"token":"3")"), std::string::npos) << text;
}

// Whether a bracket closes what is not open: where parsers that complete JSON give up.
bool HasWrongBracket(const std::string& json) {
  std::string open;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string && c == '\\') {
      ++i;
      continue;
    }
    if (c == '"') in_string = !in_string;
    if (in_string) continue;
    if (c == '{' || c == '[') open += c == '{' ? '}' : ']';
    if (c != '}' && c != ']') continue;
    if (open.empty() || open.back() != c) return true;
    open.pop_back();
  }
  return false;
}

TEST(FailedCall, HasArgumentsThatNoParserCompletesWhereverItFails) {
  const std::string arguments = R"({"a": [1, {"b": "x]}\"\u0041\\"}, []], "c": {"d": []}} )";
  for (size_t length = 2; length < arguments.size(); ++length) {
    const Json chat = MessageOf({{Kind::kCallBegin, "q", "call_1"},
                                 {Kind::kArguments, arguments.substr(0, length), ""},
                                 {Kind::kCallFailed, "raw", ""}},
                                FinishReason::kStop);
    const std::string shown = chat["message"]["tool_calls"][0]["function"]["arguments"];
    EXPECT_TRUE(HasWrongBracket(shown)) << shown;
  }
}

TEST(StreamedAnswer, ArgumentsKeepTheirDigits) {
  const Events events = {{Kind::kCallBegin, "q", "call_1"},
                         {Kind::kArguments, R"({"a": 12345678901234567890123, "b": 1e999})", ""},
                         {Kind::kCallEnd, "", ""}};
  ApiChoice choice = ChoiceFor(Api::kMessages);
  for (const ChatEvent& event : events) choice.output.Add(event);
  const std::string body = AnswerOf(Api::kMessages)->Body({choice}, Usage());
  EXPECT_NE(body.find("\"input\":" + events[1].text), std::string::npos) << body;
}

TEST(OutputBlocks, ManyArgumentsOfWhiteSpaceTakeTimeInProportion) {
  OutputBlocks output;
  output.Add({Kind::kCallBegin, "q", "call_1"});
  output.Add({Kind::kArguments, "{\"a\": 1}", ""});
  for (int i = 0; i < 1'000'000; ++i) output.Add({Kind::kArguments, " ", ""});
  EXPECT_EQ(output.blocks()[0].text, "{\"a\": 1");
  output.Add({Kind::kCallEnd, "", ""});
  EXPECT_EQ(output.blocks()[0].text.size(), 8U + 1'000'000U);
}

}  // namespace
}  // namespace baton::router
