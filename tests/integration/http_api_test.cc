#include "tests/integration/http_api.h"

#include <poll.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include "tests/support/own_sockets.h"

// Tests of calls of tools, reasoning, and the APIs beside OpenAI's chat and completions.
namespace baton {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kCall[] =
    "<think>Hm</think>Look\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": "
    "\"Bern\"}}\n</tool_call>";
constexpr char kChatPath[] = "/v1/chat/completions";

class ToolsTest : public OpenAiApiTest {
 protected:
  explicit ToolsTest(std::vector<std::string> overrides = {})
      : OpenAiApiTest([&] {
          overrides.insert(overrides.end(), {"tool_call_format=hermes", "reasoning_format=think"});
          return overrides;
        }()) {}

  static Json Chat() {
    return {{"messages", {{{"role", "user"}, {"content", "Weather?"}}}},
            {"tools", Json::parse(R"([{"type": "function", "function": {"name": "weather"}}])")}};
  }

  // The answer to `body` when the worker generates `text`.
  HttpAnswer Say(FakeWorker& worker,
                 const std::string& path,
                 const Json& body,
                 const std::string& text,
                 FinishReason finish = FinishReason::kLength) {
    auto answer = Post(path, body);
    const worker::v1::Dispatch dispatch = worker.AwaitDispatch(dispatches_++);
    worker.Say(dispatch, 0, 0, text, finish);
    worker.Finish(dispatch);
    return answer.get();
  }

 private:
  size_t dispatches_ = 0;
};

TEST_F(ToolsTest, ACallAndReasoningAreSeparated) {
  FakeWorker worker(WorkerOptions());
  const HttpAnswer answer = Say(worker, kChatPath, Chat(), kCall);
  const Json message = Json::parse(answer.body)["choices"][0]["message"];
  EXPECT_EQ(message["reasoning"], "Hm");
  EXPECT_EQ(message["content"], "Look");
  ASSERT_EQ(message["tool_calls"].size(), 1u) << answer.body;
  EXPECT_EQ(message["tool_calls"][0]["function"]["name"], "weather");
  EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"], "{\"city\": \"Bern\"}");
  EXPECT_THAT(message["tool_calls"][0]["id"].get<std::string>(), HasSubstr("call_"));
}

TEST_F(ToolsTest, ArgumentsAreStreamedBeforeTheCallIsComplete) {
  FakeWorker worker(WorkerOptions());
  RawConnection client(router_->http());
  Json body = Chat();
  body["stream"] = true;
  ASSERT_TRUE(client.Send(PostOf(kChatPath, body)));
  const worker::v1::Dispatch dispatch = worker.AwaitDispatch();
  const std::string text = kCall;
  const size_t half = text.find("Bern");
  worker.Say(dispatch, 0, 0, text.substr(0, half));
  EXPECT_THAT(client.ReadUntil("city"), HasSubstr("\"name\":\"weather\""));
  worker.Say(dispatch, 0, static_cast<int32_t>(half), text.substr(half), FinishReason::kLength);
  worker.Finish(dispatch);
  EXPECT_THAT(client.ReadToEnd().value_or(""), HasSubstr("Bern"));
}

TEST_F(ToolsTest, OneCallEndsTheSampleWhenNoMoreAreWanted) {
  FakeWorker worker(WorkerOptions());
  Json body = Chat();
  body["parallel_tool_calls"] = false;
  auto answer = Post(kChatPath, body);
  const worker::v1::Dispatch dispatch = worker.AwaitDispatch();
  worker.Say(dispatch, 0, 0, std::string(kCall) + "\n" + std::string(kCall).substr(17));
  worker.AwaitCancel(dispatch);
  worker.Finish(dispatch);
  const Json choice = Json::parse(answer.get().body)["choices"][0];
  EXPECT_EQ(choice["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
}

TEST_F(ToolsTest, WithoutToolsACallIsText) {
  FakeWorker worker(WorkerOptions());
  Json body = Chat();
  body["tool_choice"] = "none";
  const Json message =
      Json::parse(Say(worker, kChatPath, body, kCall).body)["choices"][0]["message"];
  EXPECT_FALSE(message.contains("tool_calls"));
  EXPECT_THAT(message["content"].get<std::string>(), HasSubstr("<tool_call>"));
  body["include_reasoning"] = false;
  EXPECT_THAT(Say(worker, kChatPath, body, kCall).body, Not(HasSubstr("reasoning\"")));
}

TEST_F(ToolsTest, ACallOfAToolThatIsNotAllowedIsText) {
  FakeWorker worker(WorkerOptions());
  Json body = Chat();
  body["tools"].push_back(Json::parse(R"({"type": "function", "function": {"name": "time"}})"));
  for (const char* allowed : {"weather", "time"}) {
    body["tool_choice"] = {
        {"type", "allowed_tools"},
        {"allowed_tools",
         {{"mode", "auto"},
          {"tools", {{{"type", "function"}, {"function", {{"name", allowed}}}}}}}}};
    const HttpAnswer answer = Say(worker, kChatPath, body, kCall, FinishReason::kStop);
    const Json message = Json::parse(answer.body)["choices"][0]["message"];
    EXPECT_EQ(message.contains("tool_calls"), allowed == std::string("weather")) << answer.body;
  }
}

TEST_F(ToolsTest, ResponsesAndMessagesHaveTheSameOutput) {
  FakeWorker worker(WorkerOptions());
  const Json responses = Json::parse(
      Say(worker,
          "/v1/responses",
          {{"input", "Weather?"}, {"tools", {{{"type", "function"}, {"name", "weather"}}}}},
          kCall)
          .body);
  ASSERT_EQ(responses["output"].size(), 3u) << responses;
  EXPECT_EQ(responses["output"][2]["name"], "weather");
  const Json messages =
      Json::parse(Say(worker,
                      "/v1/messages",
                      {{"max_tokens", 500},
                       {"messages", {{{"role", "user"}, {"content", "Weather?"}}}},
                       {"tools", {{{"name", "weather"}, {"input_schema", Json::object()}}}}},
                      kCall)
                      .body);
  ASSERT_EQ(messages["content"].size(), 3u) << messages;
  EXPECT_EQ(messages["content"][2]["input"]["city"], "Bern");
}

TEST_F(ToolsTest, TextsOfResponsesHaveLogprobs) {
  FakeWorker worker(WorkerOptions());
  auto answer = Post("/v1/responses", {{"input", "x"}, {"top_logprobs", 1}});
  const worker::v1::Dispatch dispatch = worker.AwaitDispatch();
  worker.Say(dispatch, 0, 0, "<think>Hm</think>Yes", FinishReason::kLength, 1);
  worker.Finish(dispatch);
  const Json output = Json::parse(answer.get().body)["output"];
  std::string tokens;
  for (const Json& one : output[1]["content"][0]["logprobs"]) {
    tokens += one["token"];
    EXPECT_EQ(one["top_logprobs"].size(), 1U);
  }
  EXPECT_EQ(tokens, "Yes");
}

TEST_F(ToolsTest, ErrorsHaveTheFormOfEachApi) {
  const auto error = [&](const char* path) {
    return Json::parse(Post(path, {{"x", 1}}).get().body);
  };
  EXPECT_EQ(error("/v1/responses")["error"]["param"], "x");
  EXPECT_EQ(error("/v1/messages")["error"]["type"], "invalid_request_error");
  EXPECT_EQ(error("/v1/messages/count_tokens")["type"], "error");
}

TEST_F(OpenAiApiTest, ToolsAreRefusedWhenCallsCouldNotBeRecognised) {
  FakeWorker worker(WorkerOptions());
  const Json messages = {{{"role", "user"}, {"content", "x"}}};
  ExpectError(kChatPath,
              {{"messages", messages}, {"tools", {Json::object()}}},
              400,
              "tools",
              "unsupported_parameter");
  ExpectError(kChatPath,
              {{"messages", messages}, {"reasoning_effort", "low"}},
              400,
              "reasoning_effort",
              "unsupported_parameter");
}

TEST_F(OpenAiApiTest, TextIsTokenisedAndBack) {
  FakeWorker worker(WorkerOptions());
  const auto post = [&](const char* path, const Json& body) {
    return Json::parse(Post(path, body).get().body);
  };
  const Json tokens = post("/tokenize", {{"prompt", "Hi"}, {"return_token_strs", true}});
  EXPECT_EQ(tokens["tokens"], Json::array({'H', 'i'}));
  EXPECT_EQ(tokens["count"], 2);
  EXPECT_EQ(tokens["token_strs"], Json::array({"H", "i"}));
  EXPECT_EQ(tokens["max_model_len"], kContext);
  const Json messages = {{{"role", "user"}, {"content", "Hi"}}};
  EXPECT_EQ(post("/tokenize", {{"messages", messages}})["count"], 8);  // <user>Hi
  EXPECT_EQ(post("/v1/messages/count_tokens", {{"messages", messages}})["input_tokens"], 8);
  const Json input = post("/v1/responses/input_tokens", {{"input", "Hi"}});
  EXPECT_EQ(input, Json::parse(R"({"object": "response.input_tokens", "input_tokens": 8})"));
  EXPECT_EQ(post("/detokenize", {{"tokens", {'H', 'i'}}})["prompt"], "Hi");
  EXPECT_EQ(post("/detokenize", {{"tokens", {999}}})["error"]["param"], "tokens[0]");
  EXPECT_EQ(post("/tokenize", Json::object())["error"]["param"], "prompt");
  EXPECT_TRUE(Json::parse(Get("/version").body)["version"].is_string());
}

TEST_F(OpenAiApiTest, AStopTokenOfTheRequestIsTheStopReason) {
  FakeWorker worker(WorkerOptions());
  auto answer = Post("/v1/completions", {{"prompt", "x"}, {"stop_token_ids", {'b'}}});
  const worker::v1::Dispatch dispatch = worker.AwaitDispatch();
  worker.Say(dispatch, 0, 0, "ab", FinishReason::kStop);
  worker.Finish(dispatch);
  const Json choice = Json::parse(answer.get().body)["choices"][0];
  EXPECT_EQ(choice["text"], "a");
  EXPECT_EQ(choice["stop_reason"], 'b');
}

TEST_F(OpenAiApiTest, MessagesHaveTheirIdUnderAnthropicsName) {
  const std::string head = Post("/v1/messages", Json::object()).get().head;
  const std::string id = head.substr(head.find("x-request-id: ") + 14, 8);
  EXPECT_THAT(head, HasSubstr("\r\nrequest-id: " + id));
  EXPECT_THAT(Post(kChatPath, Json::object()).get().head, Not(HasSubstr("\r\nrequest-id: ")));
}

TEST_F(OpenAiApiTest, TheDeadlineGivesWhatWasGenerated) {
  FakeWorker worker(WorkerOptions());
  auto answer = Post("/v1/completions", {{"prompt", "x"}, {"timeout_ms", 1000}});
  worker.Say(worker.AwaitDispatch(), 0, 0, "some text");
  const HttpAnswer http = answer.get();
  EXPECT_EQ(http.status, 200) << http.body;
  const Json choice = Json::parse(http.body)["choices"][0];
  EXPECT_EQ(choice["text"], "some text");
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["stop_reason"], "deadline");
}

TEST_F(OpenAiApiTest, TheDeadlineMayBeAHeader) {
  FakeWorker worker(WorkerOptions());
  const auto post = [&](const std::string& limit) {
    std::string request = PostOf("/v1/completions", {{"prompt", "x"}});
    request.insert(request.find("\r\n") + 2, "X-Request-Timeout-Ms: " + limit + "\r\n");
    return HttpSend(router_->http(), request, kCallLimit);
  };
  EXPECT_EQ(post("50").status, 504);
  const HttpAnswer wrong = post("soon");
  EXPECT_EQ(wrong.status, 400);
  EXPECT_EQ(Json::parse(wrong.body)["error"]["param"], "x-request-timeout-ms");
}

TEST_F(OpenAiApiTest, EachChunkHasTheUsageWhenAskedFor) {
  FakeWorker worker(WorkerOptions());
  auto answer = Post("/v1/completions",
                     {{"prompt", "xyz"},
                      {"stream", true},
                      {"stream_options", {{"continuous_usage_stats", true}}}});
  const worker::v1::Dispatch dispatch = worker.AwaitDispatch();
  worker.Say(dispatch, 0, 0, "ab", FinishReason::kLength);
  worker.Finish(dispatch);
  const Json last = EventsOf(answer.get().body).back();
  EXPECT_EQ(last["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(last["usage"]["completion_tokens"], 2);
}

TEST_F(OpenAiApiTest, TheFirstUsageOfAStreamKnowsTheCache) {
  FakeWorker worker(WorkerOptions());
  const auto ask = [&](const std::string& path, Json body, size_t number) {
    body["stream"] = true;
    auto answer = Post(path, body);
    const worker::v1::Dispatch dispatch = worker.AwaitDispatch(number);
    worker.Say(dispatch, 0, 0, "ab", FinishReason::kLength);
    worker.Finish(dispatch);
    return EventsOf(answer.get().body);
  };
  const Json messages = {{{"role", "user"}, {"content", "Hi"}}};
  const std::vector<Json> events =
      ask("/v1/messages", {{"messages", messages}, {"max_tokens", 5}}, 0);
  EXPECT_EQ(events[0]["message"]["usage"]["input_tokens"], 5);
  EXPECT_EQ(events[0]["message"]["usage"]["cache_read_input_tokens"], 3);
  EXPECT_EQ(events[events.size() - 2]["usage"]["cache_read_input_tokens"], 3);
  const std::vector<Json> chunks =
      ask("/v1/completions",
          {{"prompt", "xyzxyz"}, {"stream_options", {{"continuous_usage_stats", true}}}},
          1);
  EXPECT_EQ(chunks[0]["usage"]["prompt_tokens_details"]["cached_tokens"], 3);
}

// Each segment costs the router a system call and, with TLS, a record.
TEST_F(OpenAiApiTest, TheTokensOfOneMessageAndTheEndAreOneSegment) {
  FakeWorker worker(WorkerOptions());
  RawConnection client(router_->http());
  ASSERT_TRUE(client.Send(
      PostOf("/v1/completions", {{"prompt", "x"}, {"stream", true}, {"n", 2}, {"seed", 1}})));
  const worker::v1::Dispatch dispatch = worker.AwaitDispatch();
  worker::v1::ToRouter message;
  for (const int sample : {0, 1}) {
    worker::v1::Token& token = *message.add_tokens();
    token.set_request_id(dispatch.request_id());
    token.set_epoch(dispatch.epoch());
    token.set_sample(sample);
    token.set_token('a');
    token.set_finish(static_cast<int>(FinishReason::kLength));
  }
  worker::v1::Finished& finished = *message.add_finished();
  finished.set_request_id(dispatch.request_id());
  finished.set_epoch(dispatch.epoch());
  worker.Send(std::move(message));
  const std::string answer = client.ReadUntil("\r\n0\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("\"index\":0"));
  EXPECT_THAT(answer, HasSubstr("\"index\":1"));
  EXPECT_THAT(answer, HasSubstr("data: [DONE]"));
  const uint32_t segments = ReceivedSegments(client.fd());
  if (segments == 0) GTEST_SKIP() << "an emulator tells no segments: NOT tested";
  EXPECT_EQ(segments, 1u);
}

class KeepAliveTest : public OpenAiApiTest {
 protected:
  KeepAliveTest() : OpenAiApiTest({"sse_keep_alive_seconds=0.05"}) {}
};

TEST_F(KeepAliveTest, ASilentStreamGetsComments) {
  FakeWorker worker(WorkerOptions());
  RawConnection client(router_->http());
  ASSERT_TRUE(client.Send(PostOf("/v1/completions", {{"prompt", "x"}, {"stream", true}})));
  const worker::v1::Dispatch dispatch = worker.AwaitDispatch();
  EXPECT_THAT(client.ReadUntil(": keep-alive\n\n"), HasSubstr("200 OK"));
  EXPECT_THAT(client.ReadUntil(": keep-alive\n\n"), HasSubstr(": keep-alive\n\n"));
  worker.Say(dispatch, 0, 0, "ab", FinishReason::kLength);
  worker.Finish(dispatch);
  const std::string rest = client.ReadToEnd().value_or("");
  EXPECT_THAT(rest, HasSubstr("\"text\":\"ab\""));
  EXPECT_THAT(rest, HasSubstr("data: [DONE]"));
}

class OneTokenizerTest : public OpenAiApiTest {
 protected:
  OneTokenizerTest() : OpenAiApiTest({"tokenizer_threads=1"}) {}
};

TEST_F(OneTokenizerTest, BodiesAreParsedForClientsInTurn) {
  constexpr int kLarge = 24;
  // Takes long to parse, and is refused then.
  const std::string large =
      PostOf("/v1/completions",
             {{"prompt", "x"}, {"unknown", std::vector<Json>(400'000, Json::array({1}))}});
  std::vector<std::unique_ptr<RawConnection>> greedy;
  std::vector<std::jthread> senders;
  for (int i = 0; i < kLarge; ++i) {
    greedy.push_back(std::make_unique<RawConnection>(router_->http(), "127.0.0.2"));
    senders.emplace_back([&large, to = greedy.back().get()] { to->Send(large); });
  }
  senders.clear();
  const auto answered = [&] {
    int count = 0;
    for (const auto& connection : greedy) {
      pollfd readable{connection->fd(), POLLIN, 0};
      count += ::poll(&readable, 1, 0);
    }
    return count;
  };
  Await([&] { return answered() >= 2; }, "two answers: then the other bodies wait");
  const int before = answered();
  RawConnection other(router_->http(), "127.0.0.3");
  // Large, too: small bodies do not wait for large ones anyway.
  other.Send(PostOf("/v1/completions", {{"prompt", "x"}, {"unknown", std::vector(50'000, 1)}}));
  EXPECT_THAT(other.ReadUntil("unknown_parameter", kCallLimit), HasSubstr("400 Bad Request"));
  const int after = answered();
  EXPECT_LT(after, kLarge) << "no body was waiting";
  EXPECT_LE(after - before, 3);
  for (const auto& connection : greedy) {
    EXPECT_THAT(connection->ReadUntil("unknown_parameter", kCallLimit), HasSubstr("400 Bad"));
  }
}

class CorsTest : public OpenAiApiTest {
 protected:
  CorsTest() : OpenAiApiTest({"cors_allow_origins=[\"https://app.example\"]"}) {}

  std::string HeadOf(const std::string& method, const std::string& origin) {
    return HttpSend(router_->http(),
                    fmt::format("{} /v1/models HTTP/1.1\r\nHost: test\r\nOrigin: {}\r\nConnection: "
                                "close\r\nAccess-Control-Request-Headers: authorization\r\n\r\n",
                                method,
                                origin))
        .head;
  }
};

TEST_F(CorsTest, OnlyPagesOfAllowedOriginsMayCall) {
  const std::string allowed = "Access-Control-Allow-Origin: https://app.example";
  EXPECT_THAT(HeadOf("GET", "https://app.example"), HasSubstr(allowed));
  EXPECT_THAT(HeadOf("GET", "https://other.example"), Not(HasSubstr("Allow-Origin")));
  const std::string preflight = HeadOf("OPTIONS", "https://app.example");
  EXPECT_THAT(preflight, HasSubstr("204"));
  EXPECT_THAT(preflight, HasSubstr(allowed));
  EXPECT_THAT(preflight, HasSubstr("Access-Control-Allow-Headers: authorization"));
}

}  // namespace
}  // namespace baton
