#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/integration/http_api.h"

// Tests of a router's OpenAI HTTP API.
namespace baton {
namespace {

using ::testing::HasSubstr;

TEST_F(OpenAiApiTest, SeveralPromptsAreAnsweredInTheirOrder) {
  FakeWorker worker(WorkerOptions());
  auto answer = Post(
      "/v1/completions",
      {{"prompt", {"one", "other", Json::array({'i', 'd', 's'})}}, {"n", 2}, {"max_tokens", 9}});
  auto dispatches = AwaitPrompts(worker, 3);
  Answer(worker, dispatches.at("ids"), {"e", "f"});
  Answer(worker, dispatches.at("other"), {"c", "d"});
  Answer(worker, dispatches.at("one"), {"a", "b"});
  const HttpAnswer http = answer.get();
  ASSERT_EQ(http.status, 200) << http.body;
  const Json body = Json::parse(http.body);
  std::string texts;
  for (size_t i = 0; i < body["choices"].size(); ++i) {
    EXPECT_EQ(body["choices"][i]["index"], i);
    EXPECT_EQ(body["choices"][i]["finish_reason"], "length");
    texts += body["choices"][i]["text"].get<std::string>();
  }
  EXPECT_EQ(texts, "abcdef");
  EXPECT_EQ(body["usage"]["prompt_tokens"], 11);
  EXPECT_EQ(body["usage"]["completion_tokens"], 6);
}

TEST_F(OpenAiApiTest, SeveralPromptsStreamWithOneUsageAndOneEnd) {
  FakeWorker worker(WorkerOptions());
  auto answer = Post("/v1/completions",
                     {{"prompt", {"one", "two"}},
                      {"stream", true},
                      {"stream_options", {{"include_usage", true}}}});
  auto dispatches = AwaitPrompts(worker, 2);
  Answer(worker, dispatches.at("two"), {"BB"});
  Answer(worker, dispatches.at("one"), {"A"});
  const HttpAnswer http = answer.get();
  ASSERT_EQ(http.status, 200);
  std::map<int, std::string> texts;
  const std::vector<Json> events = EventsOf(http.body);
  ASSERT_GE(events.size(), 3u);
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    ASSERT_TRUE(events[i].contains("usage"));
    EXPECT_TRUE(events[i]["usage"].is_null());
    const Json& choice = events[i]["choices"].at(0);
    texts[choice["index"]] += choice["text"].get<std::string>();
  }
  EXPECT_EQ(texts, (std::map<int, std::string>{{0, "A"}, {1, "BB"}}));
  EXPECT_EQ(events.back()["usage"]["prompt_tokens"], 6);
  EXPECT_EQ(events.back()["usage"]["completion_tokens"], 3);
  const size_t done = http.body.find("data: [DONE]");
  ASSERT_NE(done, std::string::npos);
  EXPECT_EQ(http.body.find("data: [DONE]", done + 1), std::string::npos);
}

TEST_F(OpenAiApiTest, OnePromptThatFailsEndsTheOthers) {
  FakeWorker worker(WorkerOptions());
  ExpectError("/v1/completions",
              {{"prompt", {"fine", std::string(kContext, 'x')}}},
              400,
              "prompt[1]",
              "context_length_exceeded");
  AwaitNoRequest();
}

TEST_F(OpenAiApiTest, AClientThatLeavesEndsAllItsPrompts) {
  FakeWorker worker(WorkerOptions());
  RawConnection connection(router_->http());
  ASSERT_TRUE(connection.Send(PostOf("/v1/completions", {{"prompt", {"one", "two"}}})));
  const auto dispatches = AwaitPrompts(worker, 2);
  connection.Close();
  worker.AwaitCancel(dispatches.at("one"));
  worker.AwaitCancel(dispatches.at("two"));
  AwaitNoRequest();
}

TEST_F(OpenAiApiTest, EchoPutsThePromptBeforeEachText) {
  FakeWorker worker(WorkerOptions());
  for (const bool stream : {false, true}) {
    const size_t number = stream ? 1 : 0;
    auto answer = Post("/v1/completions",
                       {{"prompt", Json::array({'H', 'i'})}, {"echo", true}, {"stream", stream}});
    Answer(worker, worker.AwaitDispatch(number), {" you"});
    const HttpAnswer http = answer.get();
    std::string text;
    for (const Json& event : stream ? EventsOf(http.body) : std::vector{Json::parse(http.body)}) {
      text += event["choices"][0]["text"].get<std::string>();
    }
    EXPECT_EQ(text, "Hi you");
  }
}

// The first token, with the logprobs of its prompt "Hi", that a worker sends.
worker::v1::ToRouter FirstToken(const worker::v1::Dispatch& dispatch,
                                char token,
                                FinishReason end) {
  worker::v1::ToRouter message;
  worker::v1::Token& first = *message.add_tokens();
  first.set_request_id(dispatch.request_id());
  first.set_epoch(dispatch.epoch());
  first.set_token(token);
  first.set_logprob(-0.25f);
  first.set_finish(static_cast<int>(end));
  worker::v1::PromptLogprob& prompt = *first.add_prompt();
  prompt.set_token('i');
  prompt.set_logprob(-0.5f);
  return message;
}

TEST_F(OpenAiApiTest, WithoutTokensToGenerateTheAnswerIsThePrompt) {
  FakeWorker worker(WorkerOptions());
  size_t number = 0;
  for (const bool stream : {false, true}) {
    for (const FinishReason finish : {FinishReason::kLength, FinishReason::kStop}) {
      Json body = {{"prompt", "Hi"}, {"echo", true}, {"max_tokens", 0}, {"logprobs", 0}};
      if (stream) body.update({{"stream", true}, {"stream_options", {{"include_usage", true}}}});
      if (finish == FinishReason::kStop) body["stop_token_ids"] = {'x'};
      auto answer = Post("/v1/completions", body);
      const worker::v1::Dispatch dispatch = worker.AwaitDispatch(number++);
      worker.Send(FirstToken(dispatch, 'x', finish));
      worker.Finish(dispatch);
      const HttpAnswer http = answer.get();
      ASSERT_EQ(http.status, 200) << http.body;
      const std::vector<Json> events =
          stream ? EventsOf(http.body) : std::vector{Json::parse(http.body)};
      const Json choice = events[0]["choices"][0];
      EXPECT_EQ(choice["text"], "Hi");
      EXPECT_EQ(choice["logprobs"]["tokens"], Json::array({"H", "i"}));
      EXPECT_EQ(choice["logprobs"]["token_logprobs"], Json::array({nullptr, -0.5}));
      EXPECT_EQ(choice["finish_reason"], "length");
      EXPECT_FALSE(choice.contains("stop_reason"));
      EXPECT_EQ(events.back()["usage"]["prompt_tokens"], 2);
      EXPECT_EQ(events.back()["usage"]["completion_tokens"], 0);
      EXPECT_EQ(events.size(), stream ? 2u : 1u);
    }
  }
  ExpectError("/v1/completions",
              {{"prompt", "Hi"}, {"max_tokens", 0}},
              400,
              "max_tokens",
              "INVALID_ARGUMENT");
}

TEST_F(OpenAiApiTest, EchoIsEachPromptsOwnAndComesOnce) {
  FakeWorker worker(WorkerOptions());
  RawConnection client(router_->http());
  ASSERT_TRUE(client.Send(
      PostOf("/v1/completions",
             {{"prompt", {"one ", "two "}}, {"n", 2}, {"echo", true}, {"stream", true}})));
  auto dispatches = AwaitPrompts(worker, 2);
  std::string stream;
  for (const std::string prompt : {"one ", "two "}) {
    const worker::v1::Dispatch& dispatch = dispatches.at(prompt);
    for (const int32_t sample : {0, 1}) {
      worker.Say(dispatch, sample, 0, "a");
      stream += client.ReadUntil(prompt + "a");
      worker.Say(dispatch, sample, 1, "b", FinishReason::kLength);
    }
    worker.Finish(dispatch);
  }
  stream += client.ReadToEnd().value_or("");
  std::map<int, std::string> texts;
  for (const Json& event : EventsOf(stream)) {
    const Json& choice = event["choices"][0];
    texts[choice["index"]] += choice["text"].get<std::string>();
  }
  EXPECT_EQ(
      texts,
      (std::map<int, std::string>{{0, "one ab"}, {1, "one ab"}, {2, "two ab"}, {3, "two ab"}}));
}

TEST_F(OpenAiApiTest, LogprobsSayWhereEachTokensTextBegins) {
  FakeWorker worker(WorkerOptions());
  for (const bool stream : {false, true}) {
    const size_t number = stream ? 1 : 0;
    auto answer = Post("/v1/completions", {{"prompt", "x"}, {"logprobs", 1}, {"stream", stream}});
    // A character of two tokens counts once.
    const worker::v1::Dispatch dispatch = worker.AwaitDispatch(number);
    worker.Say(dispatch, 0, 0, "a\xc3", FinishReason::kNone, 1);
    worker.Say(dispatch, 0, 2, "\xa9z", FinishReason::kLength, 1);
    worker.Finish(dispatch);
    const HttpAnswer http = answer.get();
    Json offsets = Json::array();
    for (const Json& event : stream ? EventsOf(http.body) : std::vector{Json::parse(http.body)}) {
      const Json& logprobs = event["choices"][0]["logprobs"];
      if (logprobs.is_null()) continue;
      for (const Json& offset : logprobs["text_offset"]) offsets.push_back(offset);
    }
    EXPECT_EQ(offsets, Json::array({0, 1, 1, 2}));
  }
}

TEST_F(OpenAiApiTest, AStopStringIsShownWhenAskedFor) {
  FakeWorker worker(WorkerOptions());
  auto answer = Post(
      "/v1/completions",
      {{"prompt", "x"}, {"stop", "END"}, {"include_stop_str_in_output", true}, {"logprobs", 0}});
  const worker::v1::Dispatch dispatch = worker.AwaitDispatch();
  worker.Say(dispatch, 0, 0, "so END more");
  worker.Finish(dispatch);
  const Json choice = Json::parse(answer.get().body)["choices"][0];
  EXPECT_EQ(choice["text"], "so END");
  EXPECT_EQ(choice["finish_reason"], "stop");
}

TEST_F(OpenAiApiTest, AMessageIsContinued) {
  FakeWorker worker(WorkerOptions());
  auto answer =
      Post("/v1/chat/completions",
           {{"messages", {{{"role", "a"}, {"content", "So "}}}}, {"continue_final_message", true}});
  auto dispatches = AwaitPrompts(worker, 1);
  ASSERT_TRUE(dispatches.contains("<a>So ")) << dispatches.begin()->first;
  Answer(worker, dispatches.at("<a>So "), {"it"});
  EXPECT_EQ(Json::parse(answer.get().body)["choices"][0]["message"]["content"], "it");
}

TEST_F(OpenAiApiTest, ErrorsNameMemberAndReason) {
  FakeWorker worker(WorkerOptions());
  const Json messages = {{{"role", "user"}, {"content", "x"}}};
  const char* const chat = "/v1/chat/completions";
  const char* const completions = "/v1/completions";
  ExpectError(chat, {{"messages", messages}, {"top_p", 7}}, 400, "top_p", "INVALID_ARGUMENT");
  ExpectError(
      chat, {{"messages", messages}, {"temprature", 0}}, 400, "temprature", "unknown_parameter");
  ExpectError(chat,
              {{"messages", messages}, {"bad_words", Json::array({"x"})}},
              400,
              "bad_words",
              "unsupported_parameter");
  ExpectError(chat, {{"messages", messages}, {"model", "gpt"}}, 404, "model", "model_not_found");
  ExpectError(chat,
              {{"messages", {{{"role", "user"}, {"content", std::string(kContext, 'x')}}}}},
              400,
              "messages",
              "context_length_exceeded");
  ExpectError(chat,
              {{"messages", messages}, {"max_completion_tokens", kContext}},
              400,
              "max_completion_tokens",
              "context_length_exceeded");
  ExpectError(completions, {{"prompt", ""}}, 400, "prompt", "INVALID_ARGUMENT");
  ExpectError(completions, {{"prompt", {"a", ""}}}, 400, "prompt[1]", "INVALID_ARGUMENT");
  ExpectError(completions, {{"prompt", {1, 999}}}, 400, "prompt[1]", "INVALID_ARGUMENT");
  ExpectError(completions, Json::array(), 400, nullptr, "INVALID_ARGUMENT");
  AwaitNoRequest();
}

TEST_F(OpenAiApiTest, LongTextsFromOutsideAreNotEchoedWhole) {
  FakeWorker worker(WorkerOptions());
  const std::string name(1 << 20, 'm');
  ExpectError(
      "/v1/completions", {{"prompt", "x"}, {"model", name}}, 404, "model", "model_not_found");
  v1::GenerateRequest request = Ask("x");
  request.set_model(name);
  EXPECT_LT(StatusOf(request).error_message().size(), 400u);
  admin::v1::DrainWorkerRequest drain;
  drain.set_worker_id(name);
  grpc::ClientContext context;
  admin::v1::DrainWorkerResponse nothing;
  EXPECT_LT(admin_->DrainWorker(&context, drain, &nothing).error_message().size(), 400u);
}

TEST_F(OpenAiApiTest, ModelsAreListedAndFoundByName) {
  FakeWorker worker(WorkerOptions());
  const Json all = Json::parse(Get("/v1/models").body);
  ASSERT_EQ(all["data"].size(), 1u);
  const Json one = Json::parse(Get("/v1/models/bytes").body);
  EXPECT_EQ(one, all["data"][0]);
  EXPECT_EQ(one["id"], "bytes");
  EXPECT_EQ(one["max_model_len"], kContext);
  EXPECT_EQ(Json::parse(Get("/v1/models/%62yte%73").body), one);
  for (const char* other : {"/v1/models/by", "/v1/models/org/bytes", "/v1/models/bytes%"}) {
    const HttpAnswer answer = Get(other);
    EXPECT_EQ(answer.status, 404);
    EXPECT_EQ(Json::parse(answer.body)["error"]["code"], "model_not_found");
  }
}

TEST_F(OpenAiApiTest, EmbeddingsAreRefusedByName) {
  ExpectError(
      "/v1/embeddings", {{"model", "bytes"}, {"input", "x"}}, 400, nullptr, "unsupported_endpoint");
}

class ModelWithAliases : public OpenAiApiTest {
 protected:
  ModelWithAliases() : OpenAiApiTest({"model_aliases=[gpt-4o, org/other]"}) {}
};

TEST_F(ModelWithAliases, AnswersUnderEachOfItsNames) {
  FakeWorker worker(WorkerOptions());
  const Json all = Json::parse(Get("/v1/models").body)["data"];
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0]["id"], "bytes");
  EXPECT_EQ(all[1]["id"], "gpt-4o");
  EXPECT_EQ(Json::parse(Get("/v1/models/org/other").body), all[2]);
  size_t number = 0;
  for (const std::string& name : {std::string("bytes"), std::string("gpt-4o")}) {
    auto answer = Post("/v1/completions", {{"model", name}, {"prompt", "x"}, {"max_tokens", 1}});
    const worker::v1::Dispatch dispatch = worker.AwaitDispatch(number++);
    worker.Say(dispatch, 0, 0, "y", FinishReason::kLength);
    worker.Finish(dispatch);
    EXPECT_EQ(Json::parse(answer.get().body)["model"], name);
  }
  ExpectError(
      "/v1/completions", {{"model", "gpt-5"}, {"prompt", "x"}}, 404, "model", "model_not_found");
}

class SlashedModel : public OpenAiApiTest {
 protected:
  SlashedModel() : OpenAiApiTest({"model.name=org/bytes"}) {}
};

TEST_F(SlashedModel, IsFoundWithItsSlashCodedOrNot) {
  for (const char* path : {"/v1/models/org/bytes", "/v1/models/org%2Fbytes"}) {
    EXPECT_EQ(Json::parse(Get(path).body)["id"], "org/bytes") << path;
  }
}

class FewRequests : public OpenAiApiTest {
 protected:
  FewRequests() : OpenAiApiTest({"max_requests=2"}) {}
};

TEST_F(FewRequests, OverloadIs429AndMorePromptsThanEverFitAre400) {
  FakeWorker worker(WorkerOptions());
  ExpectError("/v1/completions", {{"prompt", {"a", "b", "c"}}}, 400, "prompt", "INVALID_ARGUMENT");
  const auto first = Begin(Ask("first"));
  const auto second = Begin(Ask("second"));
  const auto dispatches = AwaitPrompts(worker, 2);
  const HttpAnswer full = Post("/v1/completions", {{"prompt", "a"}}).get();
  EXPECT_EQ(full.status, 429);
  EXPECT_THAT(full.head, HasSubstr("Retry-After: "));
  EXPECT_EQ(Json::parse(full.body)["error"]["type"], "rate_limit_error");
  for (const auto& [prompt, dispatch] : dispatches) Answer(worker, dispatch, {"x"});
  EXPECT_TRUE(first->ReadToEnd().ok());
  EXPECT_TRUE(second->ReadToEnd().ok());
}

}  // namespace
}  // namespace baton
