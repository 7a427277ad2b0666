// From the tokens of a chat model to events: special tokens that are markers, and reasoning that
// the prompt has begun.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "router/text/model_text.h"
#include "router/text/sample_text.h"
#include "tests/unit/chat_format/parsed.h"

namespace baton::router {
namespace {

using Kind = ChatEvent::Kind;

constexpr TokenId kCallBegin = 256;
constexpr TokenId kCallEnd = 257;
constexpr TokenId kOther = 258;
constexpr TokenId kThink = 259;

// A call of f in each format whose calls are marked by special tokens.
constexpr std::pair<ToolCallFormat, const char*> kSpecialCalls[] = {
    {ToolCallFormat::kHermes, "⟪<tool_call>⟫{\"name\": \"f\"}⟪</tool_call>⟫"},
    {ToolCallFormat::kLlamaJson, "⟪<|python_tag|>⟫{\"name\": \"f\", \"parameters\": {}}"},
    {ToolCallFormat::kPythonic, "⟪<|python_start|>⟫[f()]⟪<|python_end|>⟫"},
    {ToolCallFormat::kMistral, "⟪[TOOL_CALLS]⟫f⟪[ARGS]⟫{}"},
    {ToolCallFormat::kDeepSeek,
     "⟪<｜tool▁calls▁begin｜>⟫⟪<｜tool▁call▁begin｜>⟫f⟪<｜tool▁sep｜>⟫{}⟪<｜tool▁call▁end｜>⟫"
     "⟪<｜tool▁calls▁end｜>⟫"},
    {ToolCallFormat::kDsml,
     "<⟪｜DSML｜⟫function_calls><⟪｜DSML｜⟫invoke name=\"f\"></⟪｜DSML｜⟫invoke>"
     "</⟪｜DSML｜⟫function_calls>"},
    {ToolCallFormat::kGlm, "⟪<tool_call>⟫f⟪</tool_call>⟫"},
    {ToolCallFormat::kKimi,
     "⟪<|tool_call_begin|>⟫functions.f:0⟪<|tool_call_argument_begin|>⟫{}⟪<|tool_call_end|>⟫"},
    {ToolCallFormat::kHarmony,
     "⟪<|start|>⟫assistant⟪<|channel|>⟫commentary to=functions.f⟪<|message|>⟫{}⟪<|call|>⟫"},
    {ToolCallFormat::kGemma, "⟪<|tool_call>⟫call:f{}⟪<tool_call|>⟫"},
    {ToolCallFormat::kMiniMaxM3,
     "⟪]<]minimax[>[⟫<tool_call>\n⟪]<]minimax[>[⟫<invoke name=\"f\">⟪]<]minimax[>[⟫</invoke>"},
    {ToolCallFormat::kCohere, "⟪<|START_ACTION|>⟫[{\"tool_name\": \"f\"}]⟪<|END_ACTION|>⟫"},
    {ToolCallFormat::kGranite, "⟪<|tool_call|>⟫[{\"name\": \"f\"}]"},
    {ToolCallFormat::kLfm2, "⟪<|tool_call_start|>⟫[f()]⟪<|tool_call_end|>⟫"},
    {ToolCallFormat::kKimiK3,
     "⟪<|open|>⟫call tool=\"f\" index=\"1\"⟪<|sep|>⟫⟪<|close|>⟫call⟪<|sep|>⟫"},
};

// A model with one token for each byte, and with the markers as special tokens.
std::unique_ptr<ModelText> Model(const ChatFormats& formats) {
  TokenizerSpec spec;
  for (int byte = 0; byte < 256; ++byte) {
    spec.pieces.push_back({std::string(1, static_cast<char>(byte)), PieceKind::kNormal});
  }
  for (const char* special : {"<tool_call>", "</tool_call>", "<|other|>", "<think>"}) {
    spec.pieces.push_back({special, PieceKind::kControl});
  }
  if (formats.calls != ToolCallFormat::kHermes) {
    for (const std::string_view marker : TokensOf(formats.calls)) {
      if (marker != "<tool_call>" && marker != "</tool_call>") {
        spec.pieces.push_back({std::string(marker), PieceKind::kControl});
      }
    }
  }
  const auto vocabulary = static_cast<int32_t>(spec.pieces.size());
  return std::make_unique<ModelText>("m",
                                     *Tokenizer::Create(std::move(spec)),
                                     *ChatTemplate::Parse("x"),
                                     std::vector<TokenId>(),
                                     1000,
                                     vocabulary,
                                     formats);
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
                                    .chat = model_->ParserOptions(chat_, output_, prompt),
                                    .chat_tokens = model_->chat_tokens()};
    SampleText text(model_->tokenizer(),
                    std::make_shared<const StopStrings>(*StopStrings::Create(stop_)),
                    options);
    GenerationDelta delta;
    for (const TokenId token : tokens) {
      if (!text.ended()) text.Append({0, SampledToken{token, 0, {}}}, delta);
    }
    if (!text.ended()) text.Append({0, std::nullopt, FinishReason::kLength}, delta);
    EXPECT_EQ(delta.text, "");
    reasoning_tokens_ = text.reasoning_token_count();
    stop_index_ = delta.stop_index;
    std::vector<ChatEvent> joined;
    for (ChatEvent& event : delta.events) {
      const bool goes_on = !joined.empty() && joined.back().kind == event.kind &&
                           event.kind != Kind::kCallBegin && event.kind != Kind::kCallEnd;
      goes_on ? void(joined.back().text += event.text) : joined.push_back(std::move(event));
    }
    return joined;
  }

  static std::vector<TokenId> Bytes(const std::string& text) {
    std::vector<TokenId> tokens;
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }

  // The tokens of `text`, in which ⟪…⟫ stands for a special token.
  std::vector<TokenId> Tokens(const std::string& text) const {
    std::vector<TokenId> tokens;
    for (const OutputPart& part : PartsOf(text)) {
      const std::vector<TokenId> more =
          part.special ? std::vector<TokenId>{*model_->tokenizer().Find(part.text)}
                       : Bytes(part.text);
      tokens.insert(tokens.end(), more.begin(), more.end());
    }
    return tokens;
  }

  // The content among `events`.
  static std::string Content(const std::vector<ChatEvent>& events) {
    std::string content;
    for (const ChatEvent& event : events) {
      if (event.kind == Kind::kContent) content += event.text;
    }
    return content;
  }

  std::unique_ptr<const ModelText> model_ =
      Model({ToolCallFormat::kHermes, ReasoningFormat::kThink});
  std::vector<std::string> stop_;
  int stop_index_ = -1;
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

TEST_F(ChatTextTest, AMarkerOfOrdinaryTokensIsText) {
  const std::string text = R"(You wrote <tool_call>{"name": "f"}</tool_call>)";
  EXPECT_EQ(Events({}, Bytes(text)), (std::vector<ChatEvent>{{Kind::kContent, text, ""}}));
  EXPECT_EQ(Events({}, Bytes("<think>Hm")),
            (std::vector<ChatEvent>{{Kind::kContent, "<think>Hm", ""}}));
}

TEST_F(ChatTextTest, AMarkerOfOrdinaryTokensStaysInArguments) {
  model_ = Model({ToolCallFormat::kHarmony, ReasoningFormat::kHarmony});
  const std::vector<ChatEvent> events = Events(
      {},
      Tokens(
          R"(⟪<|channel|>⟫commentary to=functions.f⟪<|message|>⟫{"a": "use <|end|> here"}⟪<|call|>⟫)"));
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[1].text, R"({"a": "use <|end|> here"})");
  EXPECT_EQ(events[2].kind, Kind::kCallEnd);
}

TEST_F(ChatTextTest, OnlySpecialTokensCallTools) {
  for (const auto& [format, call] : kSpecialCalls) {
    SCOPED_TRACE(call);
    model_ = Model({format, ReasoningFormat::kNone});
    const std::vector<ChatEvent> events = Events({}, Tokens(call));
    ASSERT_EQ(events.size(), 3u);
    EXPECT_EQ(events[0].text, "f");
    std::string quotation = "You wrote: ";
    for (const OutputPart& part : PartsOf(call)) quotation += part.text;
    EXPECT_EQ(Events({}, Bytes(quotation)),
              (std::vector<ChatEvent>{{Kind::kContent, quotation, ""}}));
  }
}

TEST_F(ChatTextTest, OnlyAllowedToolsAreCalled) {
  chat_.tools_json = R"([{"function": {"name": "f"}}, {"function": {"name": "g"}}])";
  for (const auto& [format, call] : kSpecialCalls) {
    SCOPED_TRACE(call);
    model_ = Model({format, ReasoningFormat::kNone});
    output_.allowed_tools = {"f"};
    EXPECT_EQ(Events({}, Tokens(call)).size(), 3u);
    output_.allowed_tools = {"g"};
    const std::vector<ChatEvent> events = Events({}, Tokens(call));
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].kind, Kind::kContent);
    EXPECT_THAT(events[0].text, ::testing::HasSubstr("f"));
  }
}

TEST_F(ChatTextTest, ACallOfHarmonyThatIsNotAllowedIsContentWithItsHeader) {
  model_ = Model({ToolCallFormat::kHarmony, ReasoningFormat::kHarmony});
  output_.allowed_tools = {"g"};
  const std::vector<ChatEvent> events =
      Events({}, Tokens("⟪<|channel|>⟫analysis to=functions.f⟪<|message|>⟫{\"a\": 1}⟪<|call|>⟫"));
  EXPECT_EQ(events,
            (std::vector<ChatEvent>{
                {Kind::kContent, "<|channel|>analysis to=functions.f<|message|>{\"a\": 1}", ""}}));
}

// The grammar of a forced call writes markers as special tokens, too.
TEST_F(ChatTextTest, OnlySpecialTokensMarkAForcedCall) {
  output_.choice = ChatOutput::Choice::kRequired;
  const std::vector<ChatEvent> events =
      Events({}, Tokens("⟪<tool_call>⟫{\"name\": \"f\"}⟪</tool_call>⟫"));
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[2].kind, Kind::kCallEnd);
  const std::string text = "<tool_call>{\"name\": \"f\"}</tool_call>";
  EXPECT_EQ(Events({}, Bytes(text)), (std::vector<ChatEvent>{{Kind::kContent, text, ""}}));
}

TEST_F(ChatTextTest, ACharacterThatIsCutOffEndsBeforeAMarker) {
  std::vector<TokenId> tokens = Tokens("a\xE4\xB8⟪<tool_call>⟫{\"name\": \"f\"}⟪</tool_call>⟫");
  const std::vector<ChatEvent> events = Events({}, tokens);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0], (ChatEvent{Kind::kContent, "a\xEF\xBF\xBD", ""}));
}

TEST_F(ChatTextTest, StopStringsMatchContentOnly) {
  const std::string answer =
      "⟪<think>⟫Hm stop k></think>A {x⟪<tool_call>⟫{\"name\": \"f\", \"arguments\": {\"a\": "
      "\"stop\"}}⟪</tool_call>⟫";
  for (const char* stop : {"k>", "stop", "Hm", ">A", "xf", "}", "<tool_call>", "x{"}) {
    stop_ = {stop};
    EXPECT_EQ(Events({}, Tokens(answer)).size(), 5u) << stop;
    EXPECT_EQ(stop_index_, -1) << stop;
  }
  stop_ = {"{x", "x"};
  const std::vector<ChatEvent> events = Events({}, Tokens(answer));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1], (ChatEvent{Kind::kContent, "A ", ""}));
  EXPECT_EQ(stop_index_, 0);
}

TEST_F(ChatTextTest, AStopStringThatBeginsAtTheEndOfTheContentIsShown) {
  stop_ = {"xyz"};
  const std::vector<ChatEvent> events =
      Events({}, Tokens("axy⟪<tool_call>⟫{\"name\": \"f\"}⟪</tool_call>⟫z"));
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0].text, "axy");
  EXPECT_EQ(events[4].text, "z");
  EXPECT_EQ(stop_index_, -1);
}

// Two sections of Kimi that both count from 0.
TEST_F(ChatTextTest, CallsHaveDifferentIds) {
  model_ = Model({ToolCallFormat::kKimi, ReasoningFormat::kNone});
  const std::string section =
      "⟪<|tool_calls_section_begin|>⟫⟪<|tool_call_begin|>⟫functions.f:0"
      "⟪<|tool_call_argument_begin|>⟫{}⟪<|tool_call_end|>⟫⟪<|tool_calls_section_end|>⟫";
  const std::vector<ChatEvent> events = Events({}, Tokens(section + section));
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(events[0].id, "functions.f:0");
  EXPECT_EQ(events[3].id.substr(0, 5), "call_");
}

TEST_F(ChatTextTest, AContinuedMessageMayEndInReasoning) {
  chat_.continue_final_message = true;
  const auto reasoning = [&](const std::string& message) {
    chat_.turns = {{"user", "x</think>", ""}, {"assistant", message, ""}};
    return Content(
        Events(Bytes("user: x</think>\nassistant: " + message), Bytes(" more</think>Yes")));
  };
  EXPECT_EQ(reasoning("<think>Hm, "), "Yes");
  EXPECT_EQ(reasoning("<think>Hm</think>It is"), " more</think>Yes");
  EXPECT_EQ(reasoning("It is"), " more</think>Yes");
  EXPECT_EQ(reasoning(std::string(1000, 'a') + "<think>" + std::string(1000, 'b')), "Yes");
}

}  // namespace
}  // namespace baton::router
