// From the tokens of a chat model to events: special tokens that are markers, and reasoning that
// the prompt has begun.
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "router/model_text.h"
#include "router/sample_text.h"

namespace baton::router {
namespace {

using Kind = ChatEvent::Kind;

constexpr TokenId kCallBegin = 256;
constexpr TokenId kCallEnd = 257;
constexpr TokenId kOther = 258;
constexpr TokenId kThink = 259;

// A model with one token for each byte, and with the markers as special tokens.
ModelText Model() {
  TokenizerSpec spec;
  for (int byte = 0; byte < 256; ++byte) {
    spec.pieces.push_back({std::string(1, static_cast<char>(byte)), PieceKind::kNormal});
  }
  for (const char* special : {"<tool_call>", "</tool_call>", "<|other|>", "<think>"}) {
    spec.pieces.push_back({special, PieceKind::kControl});
  }
  return ModelText("m",
                   *Tokenizer::Create(std::move(spec)),
                   *ChatTemplate::Parse("x"),
                   {},
                   1000,
                   260,
                   {ToolCallFormat::kHermes, ReasoningFormat::kThink});
}

class ChatTextTest : public testing::Test {
 protected:
  ChatTextTest() {
    chat_.tools_json = R"([{"function": {"name": "f"}}])";
    output_.calls = true;
  }

  // The events of `tokens` as the answer to a prompt that ends with `prompt`.
  std::vector<ChatEvent> Events(const std::vector<TokenId>& prompt,
                                const std::vector<TokenId>& tokens) {
    const SampleTextOptions options{.skip_special = true,
                                    .chat = model_.ParserOptions(chat_, output_, prompt),
                                    .chat_tokens = model_.chat_tokens()};
    SampleText text(
        model_.tokenizer(), std::make_shared<const StopStrings>(*StopStrings::Create({})), options);
    GenerationDelta delta;
    for (const TokenId token : tokens) text.Append({0, SampledToken{token, 0, {}}}, delta);
    text.Append({0, std::nullopt, FinishReason::kLength}, delta);
    EXPECT_EQ(delta.text, "");
    reasoning_tokens_ = text.reasoning_token_count();
    return delta.events;
  }

  static std::vector<TokenId> Bytes(const std::string& text) { return {text.begin(), text.end()}; }

  const ModelText model_ = Model();
  ChatInput chat_;
  ChatOutput output_;
  int32_t reasoning_tokens_ = 0;
};

TEST_F(ChatTextTest, SpecialTokensThatAreMarkersReachTheParserAndOthersAreLeftOut) {
  std::vector<TokenId> tokens = Bytes("a");
  tokens.push_back(kOther);
  tokens.push_back(kCallBegin);
  for (const TokenId token : Bytes(R"({"name": "f"})")) tokens.push_back(token);
  tokens.push_back(kCallEnd);
  const std::vector<ChatEvent> events = Events({}, tokens);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0], (ChatEvent{Kind::kContent, "a", ""}));
  EXPECT_EQ(events[1].text, "f");
  EXPECT_EQ(events[1].id.substr(0, 5), "call_");
  EXPECT_EQ(events[2].text, "{}");
  EXPECT_EQ(events[3].kind, Kind::kCallEnd);
}

TEST_F(ChatTextTest, AnAnswerBeginsInReasoningWhenThePromptHasBegunIt) {
  const std::vector<TokenId> answer = Bytes("Hm</think>Yes");
  std::string content;
  std::string reasoning;
  for (const ChatEvent& event : Events({'x', kThink, '\n'}, answer)) {
    (event.kind == Kind::kReasoning ? reasoning : content) += event.text;
  }
  EXPECT_EQ(reasoning, "Hm");
  EXPECT_EQ(content, "Yes");
  EXPECT_EQ(reasoning_tokens_, 9);  // up to the marker's last token
  content.clear();
  for (const ChatEvent& event : Events({'x'}, answer)) content += event.text;
  EXPECT_EQ(content, "Hm</think>Yes");
  EXPECT_EQ(reasoning_tokens_, 0);
}

}  // namespace
}  // namespace baton::router
