// The front end's checks of requests and its conversion of tokens to text, without gRPC or threads.
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "router/frontend/request_check.h"
#include "router/text/sample_text.h"

namespace baton::router {
namespace {

// ---- checks

class CheckTest : public testing::Test {
 protected:
  CheckTest() { request_.input = std::string("hello"); }
  void ExpectError(const std::string& part) {
    const Status status = CheckRequest(request_, limits_);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(Message(status).find(part), std::string_view::npos) << Message(status);
  }

  RequestLimits limits_{.vocabulary = 1000};
  GenerationRequest request_;
};

TEST_F(CheckTest, AcceptsAPlainRequest) {
  EXPECT_TRUE(CheckRequest(request_, limits_).ok());
}

TEST_F(CheckTest, NamesTheInputAtFault) {
  request_.input = std::string("\xff");
  ExpectError("text is not valid UTF-8");
  request_.input = std::monostate();
  ExpectError("no input");
  request_.input = std::vector<TokenId>{1, 1000};
  ExpectError("tokens.ids[1] is 1000; it must be between 0 and 999");
  request_.input = std::vector<TokenId>{-1};
  ExpectError("tokens.ids[0] is -1");
  request_.input = ChatInput{};
  ExpectError("chat.messages is empty");
  request_.input = ChatInput{{{"user", "\xc3", ""}}, "", ""};
  ExpectError("chat.messages[0].content");
}

TEST_F(CheckTest, RefusesNumbersThatAreNoNumbersOrOutOfRange) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  using Field = std::optional<float> SamplingInput::*;
  const std::pair<const char*, Field> fields[] = {
      {"temperature", &SamplingInput::temperature},
      {"top_p", &SamplingInput::top_p},
      {"min_p", &SamplingInput::min_p},
      {"repetition_penalty", &SamplingInput::repetition_penalty},
      {"presence_penalty", &SamplingInput::presence_penalty},
      {"frequency_penalty", &SamplingInput::frequency_penalty}};
  for (const auto& [name, field] : fields) {
    for (const float bad : {nan, infinity, -infinity, 11.0f, -3.0f}) {
      request_.sampling = {};
      request_.sampling.*field = bad;
      ExpectError(std::string("sampling.") + name);
    }
  }
  request_.sampling = {};
  request_.sampling.top_p = 0.0f;
  ExpectError("sampling.top_p is 0; it must be in (0, 1]");
  request_.sampling = {};
  request_.sampling.top_k = -1;
  ExpectError("sampling.top_k");
  request_.sampling = {};
  request_.sampling.logit_bias = {{5, nan}};
  ExpectError("sampling.logit_bias[5]");
}

TEST_F(CheckTest, BoundsListsAndCounts) {
  request_.stop.assign(10'000, "x");
  ExpectError("stop has 10000 strings; at most 64");
  request_.stop = {""};
  ExpectError("stop[0]");
  request_.stop = {std::string(2000, 'x')};
  ExpectError("stop[0]");
  request_.stop = {};
  request_.samples = 65;
  ExpectError("samples is 65; it must be between 0 and 64");
  request_.samples = 1;
  request_.max_tokens = 0;
  ExpectError("max_tokens is 0");
  request_.max_tokens = 5;
  request_.min_tokens = 6;
  ExpectError("min_tokens is 6");
  request_.min_tokens = 0;
  request_.top_logprobs = 21;
  ExpectError("top_logprobs is 21");
  request_.top_logprobs.reset();
  request_.stop_token_ids = {1000};
  ExpectError("stop_token_ids");
}

// ---- text

// Single letters, a space, and the two halves of é.
Tokenizer Letters() {
  TokenizerSpec spec;
  const auto add = [&](std::string bytes) {
    Piece piece;
    piece.bytes = std::move(bytes);
    spec.pieces.push_back(piece);
  };
  for (char c = 'a'; c <= 'z'; ++c) add(std::string(1, c));
  add(" ");
  add("\xc3");
  add("\xa9");
  return *Tokenizer::Create(std::move(spec));
}

// Order of precedence: the request's value, the model's default, the API's default.
TEST(ResolveSamplingTest, TheModelsDefaultsStandBehindTheRequest) {
  GenerationDefaults defaults;
  defaults.temperature = 0.6f;
  defaults.top_k = 20;
  defaults.repetition_penalty = 1.05f;
  GenerationRequest request;
  request.sampling.top_k = 0;
  request.sampling.min_p = 0.1f;
  const SamplingParams params = ResolveSampling(request, defaults, 7);
  EXPECT_EQ(params.temperature, 0.6f);
  EXPECT_EQ(params.top_k, 0);
  EXPECT_EQ(params.top_p, 1.0f);
  EXPECT_EQ(params.min_p, 0.1f);
  EXPECT_EQ(params.repetition_penalty, 1.05f);
  EXPECT_EQ(params.seed, 7u);
  EXPECT_EQ(ResolveSampling({}, {}, 7).temperature, 1.0f);
}

class SampleTextTest : public testing::Test {
 protected:
  SampleText Make(std::vector<std::string> stops, int32_t min_tokens = 0) {
    auto strings = std::make_shared<const StopStrings>(*StopStrings::Create(stops));
    SampleTextOptions options;
    options.min_tokens = min_tokens;
    return SampleText(tokenizer_, std::move(strings), options);
  }
  static OutputToken Token(TokenId id, FinishReason finish = FinishReason::kNone) {
    SampledToken token;
    token.token = id;
    return {0, token, finish};
  }
  // Appends `text` as tokens; returns the texts of the deltas, joined with '|'.
  std::string Run(SampleText& text, const std::string& letters) {
    std::string shown;
    for (const char c : letters) {
      if (text.ended()) break;
      GenerationDelta delta;
      text.Append(Token(c == ' ' ? 26 : c - 'a'), delta);
      if (!delta.text.empty()) shown += delta.text + "|";
      finish_ = delta.finish;
    }
    return shown;
  }

  Tokenizer tokenizer_ = Letters();
  FinishReason finish_ = FinishReason::kNone;
};

TEST_F(SampleTextTest, NeverShowsAStopStringOrAPartOfOne) {
  SampleText text = Make({"stop", "end"});
  EXPECT_EQ(Run(text, "so it stoped"), "so| |i|t| |");
  EXPECT_TRUE(text.stopped());
  EXPECT_EQ(finish_, FinishReason::kStop);
  EXPECT_EQ(text.token_count(), 10);
}

// As in vLLM, a stop string that ends within the first min_tokens tokens is ordinary text. One that
// ends later stops the sample, wherever it begins.
TEST_F(SampleTextTest, StopStringsWaitForMinTokens) {
  SampleText early = Make({"stop"}, 4);
  EXPECT_EQ(Run(early, "stop it"), "stop |i|t|") << "the first ends with the fourth token";
  EXPECT_FALSE(early.stopped());
  EXPECT_EQ(Run(early, " stop it"), " |");
  EXPECT_TRUE(early.stopped());
  EXPECT_EQ(early.token_count(), 12);
  SampleText late = Make({"stop"}, 3);
  EXPECT_EQ(Run(late, "stop it"), "");
  EXPECT_TRUE(late.stopped());
  EXPECT_EQ(late.token_count(), 4);
}

TEST_F(SampleTextTest, ShowsWhatOnlyLookedLikeAStopString) {
  SampleText text = Make({"stop"});
  EXPECT_EQ(Run(text, "sto "), "sto |");
  EXPECT_EQ(Run(text, "st"), "");
  GenerationDelta rest;
  text.Append({0, std::nullopt, FinishReason::kLength}, rest);
  EXPECT_EQ(rest.text, "st");
  EXPECT_EQ(rest.finish, FinishReason::kLength);
  EXPECT_FALSE(text.stopped());
}

TEST_F(SampleTextTest, NeverShowsHalfACharacter) {
  SampleText text = Make({});
  GenerationDelta delta;
  text.Append(Token(27), delta);
  EXPECT_EQ(delta.text, "");
  text.Append(Token(28), delta);
  EXPECT_EQ(delta.text, "é");
}

TEST_F(SampleTextTest, TheTokenThatEndsASampleIsNoText) {
  SampleText text = Make({});
  GenerationDelta delta;
  text.Append(Token(0), delta);
  text.Append(Token(1, FinishReason::kStop), delta);
  EXPECT_EQ(delta.text, "a");
  EXPECT_EQ(delta.tokens.size(), 2u);
  EXPECT_EQ(delta.finish, FinishReason::kStop);
}

TEST_F(SampleTextTest, TheLastTokenOfAFullLengthIsText) {
  SampleText text = Make({"bc"});
  GenerationDelta delta;
  text.Append(Token(0), delta);
  text.Append(Token(1, FinishReason::kLength), delta);
  EXPECT_EQ(delta.text, "ab");
  EXPECT_EQ(delta.finish, FinishReason::kLength);
}

}  // namespace
}  // namespace baton::router
