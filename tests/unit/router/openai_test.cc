// Requests, answers and errors in the format of OpenAI's HTTP API, without HTTP.
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "router/api/openai_answer.h"
#include "router/api/openai_request.h"
#include "router/frontend/request_check.h"
#include "router/request_error.h"

namespace baton::router {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr OpenAiKind kChat = OpenAiKind::kChat;
constexpr OpenAiKind kCompletion = OpenAiKind::kCompletion;

// Parses a valid request with the additional `member`.
StatusOr<ApiRequest> ParseWith(OpenAiKind kind, const std::string& member) {
  const char* rest =
      kind == kChat ? R"("messages": [{"role": "user", "content": "x"}])" : R"("prompt": "x")";
  return ParseOpenAiRequest(kind, fmt::format("{{{}, {}}}", member, rest));
}

// ---- requests

TEST(OpenAiRequest, ReadsAChat) {
  const auto request = ParseOpenAiRequest(kChat, R"({
    "model": "m", "n": 2, "stream": true, "stream_options": {"include_usage": true},
    "messages": [{"role": "system", "content": "be brief"},
                 {"role": "user", "content": [{"type": "text", "text": "hi "},
                                              {"type": "text", "text": "there"}]},
                 {"role": "assistant", "content": null, "tool_calls": [{"id": "1"}]}],
    "temperature": 0.5, "seed": 7, "stop": "x", "logprobs": true, "top_logprobs": 3,
    "max_tokens": 5, "logit_bias": {"12": -1.5}, "user": "u"})");
  ASSERT_TRUE(request.ok()) << request.status();
  const GenerationRequest& g = request->generation;
  ASSERT_EQ(request->inputs.size(), 1u);
  const auto& chat = std::get<ChatInput>(request->inputs[0]);
  ASSERT_EQ(chat.turns.size(), 3u);
  EXPECT_EQ(chat.turns[1].content, "hi there");
  EXPECT_EQ(chat.turns[1].extra_json, "");
  EXPECT_EQ(Json::parse(chat.turns[2].extra_json),
            Json::parse(R"({"content": null, "tool_calls": [{"id": "1"}]})"));
  EXPECT_EQ(g.samples, 2);
  EXPECT_EQ(g.sampling.temperature, 0.5f);
  EXPECT_EQ(g.sampling.seed, 7u);
  EXPECT_EQ(g.stop, std::vector<std::string>{"x"});
  EXPECT_EQ(g.top_logprobs, 3);
  EXPECT_EQ(g.max_tokens, 5);
  ASSERT_EQ(g.sampling.logit_bias.size(), 1u);
  EXPECT_EQ(g.sampling.logit_bias[0].first, 12);
  EXPECT_TRUE(g.skip_special_tokens);
  EXPECT_TRUE(request->stream);
  EXPECT_TRUE(request->include_usage);
}

TEST(OpenAiRequest, DepthIsBoundedWhereverStrangersPutIt) {
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  const std::string user = R"({"role": "user", "content": "x"})";
  const std::pair<std::string, std::string> cases[] = {
      {R"({"messages": [{"role": "user", "tool_calls": )" + deep + "}]}", "messages[0].tool_calls"},
      {R"({"messages": [{"role": "user", "content": )" + deep + "}]}", "messages[0].content"},
      {"{\"messages\": [" + user + "], \"tools\": " + deep + "}", "tools"},
      {"{\"messages\": [" + user + R"(], "chat_template_kwargs": {"a": )" + deep + "}}",
       "chat_template_kwargs.a"},
      {"{\"messages\": [" + user + "], \"unknown\": " + deep + "}", "unknown"}};
  for (const auto& [body, member] : cases) {
    const Status status = ParseOpenAiRequest(kChat, body).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(
        Message(status),
        "the body: " + member + " is nested more than 60 levels deep; at most 60 are allowed");
    EXPECT_EQ(MemberOf(status), member);
  }
  EXPECT_EQ(MemberOf(ParseOpenAiRequest(kChat, deep).status()), "");
  EXPECT_EQ(MemberOf(ParseOpenAiRequest(kChat, "{").status()), "");
}

TEST(OpenAiRequest, TheNumberOfChoicesIsCheckedBeforeTheyAreMade) {
  const auto request = ParseOpenAiRequest(kCompletion, R"({"prompt": "a", "n": 1000000000})");
  EXPECT_EQ(Message(request.status()), "n is 1000000000; it must be between 1 and 64");
  EXPECT_EQ(MemberOf(request.status()), "n");
}

TEST(OpenAiRequest, MembersReachTemplatesInTheOrderTheyCame) {
  const auto request = ParseOpenAiRequest(kChat, R"({
    "messages": [{"role": "user", "content": "x", "z": {"b": 1, "a": 2}, "c": 3}],
    "tools": [{"type": "function", "function": {"name": "f", "description": "d"}}]})");
  ASSERT_TRUE(request.ok()) << request.status();
  const auto& chat = std::get<ChatInput>(request->inputs[0]);
  EXPECT_EQ(chat.turns[0].extra_json, R"({"z":{"b":1,"a":2},"c":3})");
  EXPECT_EQ(chat.tools_json, R"([{"type":"function","function":{"name":"f","description":"d"}}])");
}

TEST(OpenAiRequest, ReadsHowAPromptIsMadeAndTextShown) {
  const auto request = ParseOpenAiRequest(kChat, R"({
    "messages": [{"role": "assistant", "content": "So"}], "continue_final_message": true,
    "add_generation_prompt": false, "chat_template_kwargs": {"enable_thinking": false},
    "documents": [{"text": "d"}], "skip_special_tokens": false, "add_special_tokens": true,
    "include_stop_str_in_output": true})");
  ASSERT_TRUE(request.ok()) << request.status();
  const auto& chat = std::get<ChatInput>(request->inputs[0]);
  EXPECT_TRUE(chat.continue_final_message);
  EXPECT_EQ(Json::parse(chat.arguments_json),
            Json::parse(R"({"add_generation_prompt": false, "documents": [{"text": "d"}],
                            "enable_thinking": false})"));
  EXPECT_FALSE(request->generation.skip_special_tokens);
  EXPECT_EQ(request->generation.add_special_tokens, true);
  EXPECT_TRUE(request->generation.include_stop_string);
}

TEST(OpenAiRequest, ReadsEveryKindOfPrompt) {
  const std::vector<TokenId> tokens = {1, 2};
  const std::pair<const char*, std::vector<PromptInput>> cases[] = {
      {R"("abc")", {std::string("abc")}},
      {R"("")", {std::string()}},
      {R"(["abc"])", {std::string("abc")}},
      {R"(["abc", ""])", {std::string("abc"), std::string()}},
      {R"([1, 2])", {tokens}},
      {R"([[1, 2]])", {tokens}},
      {R"([[1, 2], [1, 2]])", {tokens, tokens}},
  };
  for (const auto& [prompt, inputs] : cases) {
    SCOPED_TRACE(prompt);
    const auto request =
        ParseOpenAiRequest(kCompletion, fmt::format(R"({{"prompt": {}}})", prompt));
    ASSERT_TRUE(request.ok()) << request.status();
    ASSERT_EQ(request->inputs.size(), inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      ASSERT_EQ(request->inputs[i].index(), inputs[i].index());
      if (const auto* text = std::get_if<std::string>(&inputs[i])) {
        EXPECT_EQ(std::get<std::string>(request->inputs[i]), *text);
      } else {
        EXPECT_EQ(std::get<std::vector<TokenId>>(request->inputs[i]), tokens);
      }
    }
    EXPECT_EQ(request->generation.max_tokens, std::nullopt);
    EXPECT_EQ(request->generation.default_max_tokens, 16);
  }
}

TEST(OpenAiRequest, RefusesWhatIsMalformedAndNamesTheMember) {
  const std::pair<const char*, const char*> chats[] = {
      {"", ""},
      {"[]", ""},
      {"{\"messages\": \"\xff\"}", ""},
      {R"({})", "messages"},
      {R"({"messages": []})", "messages"},
      {R"({"messages": [1]})", "messages[0]"},
      {R"({"messages": [{"role": 1}]})", "messages[0].role"},
      {R"({"messages": [{"role": "user", "content": 5}]})", "messages[0].content"},
      {R"({"messages": [{"role": "user"}]})", "messages[0].content"},
      {R"({"messages": [{"role": "user", "content": null}]})", "messages[0].content"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})",
       "messages[0].content[0]"},
      {R"({"messages": [{"role": "user", "content": "x"}], "tool_choice": "required"})",
       "tool_choice"},
      {R"({"messages": [{"role": "user", "content": "x"}], "tools": {}})", "tools"},
      {R"({"messages": [{"role": "user", "content": "x"}], "tool_choice": {"type": "function"}})",
       "tool_choice.function"},
      {R"({"messages": [{"role": "user", "content": "x"}], "timeout_ms": 0})", "timeout_ms"},
      {R"({"messages": [{"role": "user", "content": "x"}], "top_logprobs": 1})", "top_logprobs"},
      {R"({"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": []})",
       "chat_template_kwargs"},
      {R"({"messages": [{"role": "user", "content": "x"}], "best_of": 2})", "best_of"}};
  for (const auto& [body, member] : chats) {
    const Status status = ParseOpenAiRequest(kChat, body).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << body;
    EXPECT_EQ(MemberOf(status), member) << body;
  }
  const std::pair<const char*, const char*> completions[] = {
      {R"({})", "prompt"},
      {R"({"prompt": 5})", "prompt"},
      {R"({"prompt": []})", "prompt"},
      {R"({"prompt": [[[1]]]})", "prompt[0]"},
      {R"({"prompt": ["a", 5]})", "prompt[1]"},
      {R"({"prompt": [1e99]})", "prompt"},
      {R"({"prompt": "a", "n": 0})", "n"},
      {R"({"prompt": "a", "n": 99999999999})", "n"},
      {R"({"prompt": "a", "n": 2, "best_of": 3})", "best_of"},
      {R"({"prompt": "a", "temperature": "hot"})", "temperature"},
      {R"({"prompt": "a", "max_tokens": 1.5})", "max_tokens"},
      {R"({"prompt": "a", "stop": [1]})", "stop"},
      {R"({"prompt": "a", "logit_bias": {"x": 1}})", "logit_bias"},
      {R"({"prompt": "a", "stream": 1})", "stream"},
      {R"({"prompt": "a", "prompt_logprobs": true})", "prompt_logprobs"},
      {R"({"prompt": "a", "prompt_logprobs": 1, "stream": true})", "prompt_logprobs"}};
  for (const auto& [body, member] : completions) {
    const Status status = ParseOpenAiRequest(kCompletion, body).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << body;
    EXPECT_EQ(MemberOf(status), member) << body;
  }
}

TEST(OpenAiRequest, BoundsTheNumberOfPrompts) {
  Json body = {{"prompt", std::vector<std::string>(kMaxPrompts, "a")}};
  EXPECT_TRUE(ParseOpenAiRequest(kCompletion, body.dump()).ok());
  body["prompt"].push_back("a");
  EXPECT_THAT(std::string(Message(ParseOpenAiRequest(kCompletion, body.dump()).status())),
              HasSubstr("at most 256"));
}

TEST(OpenAiRequest, AsManySamplesAsAreReturnedMayBeTheBest) {
  EXPECT_TRUE(ParseWith(kCompletion, R"("n": 2, "best_of": 2)").ok());
  EXPECT_TRUE(ParseWith(kCompletion, R"("best_of": 1)").ok());
}

TEST(OpenAiRequest, MembersThatChangeNothingAreIgnored) {
  for (const char* member : {R"("user": "u")",
                             R"("metadata": {"a": "b"})",
                             R"("store": true)",
                             R"("service_tier": "auto")",
                             R"("prompt_cache_key": "k")",
                             R"("safety_identifier": "s")",
                             R"("request_id": "r")",
                             R"("prompt_logprobs": null)",
                             R"("nothing_known": null)",
                             R"("response_format": {"type": "text"})",
                             R"("use_beam_search": false)",
                             R"("stream_options": {"include_obfuscation": false})"}) {
    EXPECT_TRUE(ParseWith(kChat, member).ok()) << member;
    EXPECT_TRUE(ParseWith(kCompletion, member).ok()) << member;
  }
  EXPECT_TRUE(ParseWith(kChat, R"("parallel_tool_calls": false)").ok());
  EXPECT_TRUE(ParseWith(kChat, R"("verbosity": "low")").ok());
  EXPECT_TRUE(ParseWith(kChat, R"("modalities": ["text"])").ok());
  EXPECT_TRUE(ParseWith(kCompletion, R"("suffix": "")").ok());
}

TEST(OpenAiRequest, MembersThatWouldChangeTheAnswerAreRefusedByName) {
  const std::pair<const char*, const char*> chats[] = {{"functions", R"([{"name": "f"}])"},
                                                       {"function_call", "\"auto\""},
                                                       {"logits_processors", "[]"},
                                                       {"chat_template", "\"x\""},
                                                       {"audio", "{}"},
                                                       {"modalities", R"(["text", "audio"])"},
                                                       {"bad_words", R"(["x"])"},
                                                       {"truncate_prompt_tokens", "5"},
                                                       {"use_beam_search", "true"},
                                                       {"echo", "true"}};
  for (const auto& [name, value] : chats) {
    const Status status = ParseWith(kChat, fmt::format("\"{}\": {}", name, value)).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(Message(status)), HasSubstr(name));
    EXPECT_EQ(MemberOf(status), name);
    EXPECT_EQ(ReasonOf(status), "unsupported_parameter") << name;
  }
  const Status suffix = ParseWith(kCompletion, R"("suffix": "end")").status();
  EXPECT_EQ(MemberOf(suffix), "suffix");
}

TEST(OpenAiRequest, UnknownMembersAreRefusedWithTheNearestKnownOne) {
  const std::pair<const char*, const char*> cases[] = {{"temprature", "temperature"},
                                                       {"max_token", "max_tokens"},
                                                       {"stop_tokens_ids", "stop_token_ids"},
                                                       {"top-p", "top_p"}};
  for (const auto& [name, nearest] : cases) {
    const Status status = ParseWith(kChat, fmt::format("\"{}\": 1", name)).status();
    EXPECT_EQ(Message(status),
              fmt::format("{} is not a member of a chat request; did you mean {}?", name, nearest));
    EXPECT_EQ(MemberOf(status), name);
    EXPECT_EQ(ReasonOf(status), "unknown_parameter");
  }
  EXPECT_EQ(Message(ParseWith(kCompletion, R"("quite_different": 1)").status()),
            "quite_different is not a member of a completion request");
  EXPECT_EQ(MemberOf(ParseWith(kCompletion, R"("messages": [])").status()), "messages");
  EXPECT_EQ(MemberOf(ParseWith(kChat, R"("prompt": "p")").status()), "prompt");
  EXPECT_EQ(MemberOf(ParseWith(kChat, R"("stream_options": {"usage": true})").status()),
            "stream_options.usage");
  const Status long_name = ParseWith(kChat, '"' + std::string(1 << 20, 'a') + "\": 1").status();
  EXPECT_LT(Message(long_name).size(), 200u);
  EXPECT_LT(MemberOf(long_name).size(), 200u);
}

TEST(OpenAiRequest, ErrorsOfValuesUseItsOwnNames) {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {R"("top_p": 0)", "top_p is 0", "top_p"},
      {R"("max_tokens": -1)", "max_tokens is -1", "max_tokens"},
      {R"("max_completion_tokens": -1)", "max_completion_tokens is -1", "max_completion_tokens"},
      {R"("logprobs": 21)", "logprobs is 21", "logprobs"},
      {R"("min_tokens": 17)", "min_tokens is 17", "min_tokens"},
      {R"("stop": [""])", "the length in bytes of stop[0] is 0", "stop[0]"},
      {R"("stop_token_ids": [5, 1000])", "stop_token_ids[1] is 1000", "stop_token_ids[1]"},
      {R"("logit_bias": {"1000": 1})", "a key of logit_bias is 1000", "logit_bias"}};
  for (const auto& [member, part, param] : cases) {
    const auto request = ParseWith(kCompletion, member);
    ASSERT_TRUE(request.ok()) << request.status();
    GenerationRequest generation = request->generation;
    generation.input = request->inputs[0];
    const Status status = CheckRequest(generation, {.vocabulary = 1000});
    EXPECT_EQ(Message(status).substr(0, std::string_view(part).size()), part);
    EXPECT_EQ(MemberOf(status), param);
  }
}

TEST(OpenAiRequest, NumbersBeyondEveryRangeAreNamed) {
  for (const auto& [member, error] :
       {std::pair(R"("temperature": 1e308)", "temperature is 1e+308; it is out of range"),
        std::pair(R"("top_p": -1e39)", "top_p is -1e+39; it is out of range"),
        std::pair(R"("logit_bias": {"5": 1e300})",
                  "logit_bias[5] is 1e+300; it is out of range")}) {
    EXPECT_EQ(Message(ParseWith(kChat, member).status()), error);
  }
}

TEST(OpenAiRequest, ToolsAreNotOfferedWhenNoneMayBeCalled) {
  const auto tools_of = [](const char* choice) {
    const auto request =
        ParseWith(kChat, fmt::format(R"("tools": [{{}}], "tool_choice": "{}")", choice));
    EXPECT_TRUE(request.ok()) << request.status();
    return request.ok() ? std::get<ChatInput>(request->inputs.at(0)).tools_json : "error";
  };
  EXPECT_EQ(tools_of("auto"), "[{}]");
  EXPECT_EQ(tools_of("none"), "");
}

TEST(OpenAiRequest, ReadsHowCallsAndReasoningAreShown) {
  const auto request = ParseWith(kChat, R"("tools": [{}], "parallel_tool_calls": false,
    "include_reasoning": false, "reasoning_effort": "low", "timeout_ms": 1500,
    "stream_options": {"continuous_usage_stats": true})");
  ASSERT_TRUE(request.ok()) << request.status();
  ASSERT_TRUE(request->generation.chat_output.has_value());
  EXPECT_TRUE(request->generation.chat_output->calls);
  EXPECT_TRUE(request->generation.chat_output->one_call);
  EXPECT_FALSE(request->include_reasoning);
  EXPECT_TRUE(request->continuous_usage);
  EXPECT_EQ(request->generation.timeout, std::chrono::milliseconds(1500));
  EXPECT_EQ(std::get<ChatInput>(request->inputs[0]).reasoning_effort, "low");
  const auto plain = ParseWith(kChat, R"("tools": [])");
  EXPECT_FALSE(plain->generation.chat_output->calls);
  EXPECT_FALSE(ParseWith(kCompletion, R"("n": 1)")->generation.chat_output.has_value());
}

// ---- answers

// Parses the JSON of one event.
Json Event(const std::string& chunk) {
  EXPECT_EQ(chunk.substr(0, 6), "data: ");
  EXPECT_EQ(chunk.substr(chunk.size() - 2), "\n\n");
  return Json::parse(chunk.substr(6));
}

// What is written of `delta`, the first part of a choice.
std::string First(OpenAiAnswer& answer, const GenerationDelta& delta) {
  ApiChoice choice;
  choice.Add(delta);
  return answer.Delta({.number = 0, .first = true, .delta = delta, .choice = choice, .usage = {}});
}

TEST(OpenAiResponse, ShapesAChat) {
  OpenAiAnswer answer(
      {.kind = kChat, .id = "id-1", .model = "m", .created = 5, .with_logprobs = true});
  GenerationEnd end;
  end.prompt_tokens = 3;
  end.generated_tokens = 4;
  std::vector<ApiChoice> choices(1);
  choices[0].output.Add({ChatEvent::Kind::kContent, "hi", ""});
  choices[0].finish = FinishReason::kStop;
  choices[0].logprobs.push_back({0, {1, -0.5f, "\xc3"}, {}});
  const Json body = Json::parse(answer.Body(choices, end));
  EXPECT_EQ(body["choices"][0]["message"]["content"], "hi");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(body["choices"][0]["logprobs"]["content"][0]["bytes"][0], 0xc3);
  EXPECT_EQ(body["usage"]["total_tokens"], 7);

  GenerationDelta delta;
  delta.events.push_back({ChatEvent::Kind::kContent, "x", ""});
  const Json event = Event(First(answer, delta));
  EXPECT_EQ(event["object"], "chat.completion.chunk");
  EXPECT_EQ(event["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(event["choices"][0]["delta"]["content"], "x");
  EXPECT_TRUE(event["choices"][0]["finish_reason"].is_null());
  EXPECT_FALSE(event.contains("usage"));
}

TEST(OpenAiResponse, ChunksBeforeTheUsageSayNull) {
  OpenAiAnswer answer({.kind = kCompletion, .id = "i", .model = "m", .include_usage = true});
  const Json event = Event(First(answer, {}));
  ASSERT_TRUE(event.contains("usage"));
  EXPECT_TRUE(event["usage"].is_null());
  GenerationEnd end;
  end.prompt_tokens = 2;
  end.generated_tokens = 3;
  const std::string rest = answer.End({}, end);
  const size_t done = rest.find("data: [DONE]\n\n");
  ASSERT_NE(done, std::string::npos);
  const Json last = Event(rest.substr(0, done));
  EXPECT_EQ(last["usage"]["total_tokens"], 5);
  EXPECT_EQ(last["choices"], Json::array());
}

TEST(OpenAiResponse, LogprobsOfACompletionSayWhereTokensBeginAndHoldTheChosenOne) {
  OpenAiAnswer answer({.kind = kCompletion, .id = "i", .model = "m"});
  GenerationDelta delta;
  delta.logprobs.push_back({7, {1, -3.0f, "c"}, {{2, -0.5f, "a"}}});
  const Json logprobs = Event(First(answer, delta))["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs, Json::parse(R"({"tokens": ["c"], "token_logprobs": [-3.0],
                                      "top_logprobs": [{"a": -0.5, "c": -3.0}],
                                      "text_offset": [7]})"));
}

// A JSON reader keeps one of several equal keys.
TEST(OpenAiResponse, TokensThatAreNoTextHaveDifferentKeys) {
  OpenAiAnswer answer({.kind = kCompletion, .id = "i", .model = "m"});
  GenerationDelta delta;
  delta.logprobs.push_back({0, {1, -1.0f, "\xf0\x9f"}, {{2, -0.5f, "\x98"}, {3, -2.0f, "é"}}});
  const Json logprobs = Event(First(answer, delta))["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], Json::parse(R"(["bytes:\\xf0\\x9f"])"));
  EXPECT_EQ(logprobs["top_logprobs"],
            Json::parse(R"([{"bytes:\\xf0\\x9f": -1.0, "bytes:\\x98": -0.5, "é": -2.0}])"));
}

TEST(OpenAiResponse, SaysWhatOfTheRequestEndedTheOutput) {
  OpenAiAnswer answer({.kind = kCompletion, .id = "i", .model = "m", .stops = {"a", "b"}});
  const auto reasons = [&](const GenerationDelta& delta) {
    ApiChoice choice;
    choice.Add(delta);
    const Json body = Json::parse(answer.Body({choice}, {}));
    return std::pair(Event(First(answer, delta))["choices"][0], body["choices"][0]);
  };
  GenerationDelta delta;
  delta.finish = FinishReason::kStop;
  EXPECT_FALSE(reasons(delta).first.contains("stop_reason"));
  delta.stop_index = 1;
  EXPECT_EQ(reasons(delta).first["stop_reason"], "b");
  EXPECT_EQ(reasons(delta).second["stop_reason"], "b");
  delta.stop_index = -1;
  delta.stop_token = 7;
  EXPECT_EQ(reasons(delta).first["stop_reason"], 7);
  EXPECT_EQ(reasons(delta).second["stop_reason"], 7);
}

TEST(OpenAiResponse, ModelsSayTheirContext) {
  const Json model = Json::parse(OpenAiModel("org/m", 5, 2048));
  EXPECT_EQ(model["id"], "org/m");
  EXPECT_EQ(model["max_model_len"], 2048);
  const Json all = Json::parse(OpenAiModels({"org/m"}, 5, 2048));
  EXPECT_EQ(all["object"], "list");
  EXPECT_EQ(all["data"], Json::array({model}));
}

// ---- errors

Json ErrorOf(const Status& status) {
  return Json::parse(OpenAiError(status))["error"];
}

TEST(OpenAiError, SaysMemberAndReason) {
  const Json plain = ErrorOf(InvalidArgument("wrong"));
  EXPECT_EQ(plain["message"], "wrong");
  EXPECT_EQ(plain["type"], "invalid_request_error");
  EXPECT_TRUE(plain["param"].is_null());
  EXPECT_EQ(plain["code"], "INVALID_ARGUMENT");
  const Json named =
      ErrorOf(WithReason(InvalidMember("prompt", "too long"), reason::kContextLengthExceeded));
  EXPECT_EQ(named["param"], "prompt");
  EXPECT_EQ(named["code"], "context_length_exceeded");
}

TEST(OpenAiError, TheFirstAndMostExactMemberCounts) {
  EXPECT_EQ(MemberOf(AtMember(InvalidMember("messages[1].role", "x"), "messages")),
            "messages[1].role");
  EXPECT_TRUE(AtMember(OkStatus(), "messages").ok());
}

TEST(OpenAiError, EveryStatusHasItsHttpStatusAndType) {
  const std::tuple<StatusCode, int, const char*> cases[] = {
      {StatusCode::kInvalidArgument, 400, "invalid_request_error"},
      {StatusCode::kOutOfRange, 400, "invalid_request_error"},
      {StatusCode::kNotFound, 404, "invalid_request_error"},
      {StatusCode::kResourceExhausted, 429, "rate_limit_error"},
      {StatusCode::kUnavailable, 503, "server_error"},
      {StatusCode::kDeadlineExceeded, 504, "server_error"},
      {StatusCode::kInternal, 500, "server_error"}};
  for (const auto& [code, http, type] : cases) {
    EXPECT_EQ(HttpStatusOf(Status(code, "x")), http);
    EXPECT_EQ(ErrorOf(Status(code, "x"))["type"], type);
  }
}

TEST(OpenAiError, LongTextsFromOutsideAreCutBetweenCharacters) {
  EXPECT_EQ(Shown("short"), "short");
  EXPECT_EQ(Shown("abcéf", 4), "abc… (6 bytes)");
  EXPECT_EQ(Shown("abcéf", 5), "abcé… (6 bytes)");
  const std::string message = ErrorOf(InvalidArgument("{}", std::string(1 << 20, 'm')))["message"];
  EXPECT_LT(message.size(), 3000u);
  EXPECT_THAT(message, HasSubstr("(1048576 bytes)"));
}

}  // namespace
}  // namespace baton::router
