// The logprobs of prompts in OpenAI's APIs: how requests ask for them, and how answers show them.
#include <string>

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

ApiRequest Completion(const std::string& members) {
  return *ParseOpenAiRequest(kCompletion, R"({"prompt": "x", )" + members + "}");
}

TEST(PromptLogprobs, AreWantedByEchoOrByName) {
  EXPECT_FALSE(Completion(R"("echo": true)").generation.prompt_logprobs.has_value());
  const ApiRequest echoed = Completion(R"("echo": true, "logprobs": 2, "stream": true)");
  EXPECT_EQ(echoed.generation.prompt_logprobs, 2);
  EXPECT_EQ(echoed.generation.names.prompt_logprobs, "logprobs");
  EXPECT_FALSE(echoed.prompt_logprobs);
  const ApiRequest both = Completion(R"("echo": true, "logprobs": 2, "prompt_logprobs": 1)");
  EXPECT_EQ(both.generation.prompt_logprobs, 2);
  const auto chat = ParseOpenAiRequest(
      kChat, R"({"messages": [{"role": "user", "content": "x"}], "prompt_logprobs": 3})");
  EXPECT_EQ(chat->generation.prompt_logprobs, 3);
  EXPECT_TRUE(chat->prompt_logprobs);
}

// Evaluation harnesses ask so for the logprobs of texts.
TEST(PromptLogprobs, ComeWithoutOutputWhenMaxTokensIsZero) {
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    const ApiRequest request =
        Completion(fmt::format(R"("{}": 0, "echo": true, "logprobs": 1)", name));
    EXPECT_TRUE(request.prompt_only);
    EXPECT_EQ(request.generation.max_tokens, 1);
    EXPECT_EQ(request.generation.prompt_logprobs, 1);
    EXPECT_FALSE(Completion(fmt::format(R"("{}": 1, "echo": true)", name)).prompt_only);
    const auto refused = ParseOpenAiRequest(
        kCompletion, fmt::format(R"({{"prompt": "x", "{}": 0, "logprobs": 1}})", name));
    EXPECT_EQ(MemberOf(refused.status()), name);
    EXPECT_THAT(std::string(Message(refused.status())),
                HasSubstr("is 0; it must be at least 1 (0 is for a request with echo: true"));
  }
  EXPECT_FALSE(Completion(R"("echo": true)").prompt_only);
  const auto longer = ParseOpenAiRequest(
      kCompletion, R"({"prompt": "x", "echo": true, "max_tokens": 0, "min_tokens": 1})");
  EXPECT_EQ(MemberOf(longer.status()), "min_tokens");
  const auto chat = ParseOpenAiRequest(
      kChat, R"({"messages": [{"role": "user", "content": "x"}], "max_tokens": 0})");
  ASSERT_TRUE(chat.ok()) << chat.status();
  GenerationRequest generation = chat->generation;
  generation.input = chat->inputs[0];
  EXPECT_EQ(MemberOf(CheckRequest(generation, {.vocabulary = 1000})), "max_tokens");
}

TEST(PromptLogprobs, AreBoundedInNumber) {
  GenerationRequest request;
  request.prompt_logprobs = 20;
  EXPECT_TRUE(CheckPromptLogprobs(request, 24'000).ok());
  const Status many = CheckPromptLogprobs(request, 25'000);
  EXPECT_EQ(MemberOf(many), "prompt_logprobs");
  EXPECT_THAT(std::string(Message(many)), HasSubstr("makes 525000 logprobs; at most 524288"));
  request.prompt_logprobs = 0;
  EXPECT_TRUE(CheckPromptLogprobs(request, 524'288).ok());
}

TEST(PromptLogprobs, AreNullForTheFirstToken) {
  TokenLogprobs first{0, {7, 0, "The"}, {}};
  first.known = false;
  const TokenLogprobs second{3, {8, -2.0f, " cat"}, {{9, -0.5f, " dog"}, {5, -1.0f, "\xf0"}}};
  std::vector<ApiChoice> choices(1);
  choices[0].logprobs = {first, second};
  choices[0].prompt_logprobs = {first, second};
  OpenAiAnswer answer({.kind = kCompletion, .with_logprobs = true, .with_prompt_logprobs = true});
  const Json choice = Json::parse(answer.Body(choices, {}))["choices"][0];
  EXPECT_EQ(choice["logprobs"], Json::parse(R"({"tokens": ["The", " cat"],
      "token_logprobs": [null, -2.0], "text_offset": [0, 3],
      "top_logprobs": [null, {" dog": -0.5, "bytes:\\xf0": -1.0, " cat": -2.0}]})"));
  EXPECT_EQ(choice["prompt_logprobs"], Json::parse(R"([null, {
      "8": {"logprob": -2.0, "rank": null, "decoded_token": " cat"},
      "9": {"logprob": -0.5, "rank": 1, "decoded_token": " dog"},
      "5": {"logprob": -1.0, "rank": 2, "decoded_token": "bytes:\\xf0"}}])"));
}

}  // namespace
}  // namespace baton::router
