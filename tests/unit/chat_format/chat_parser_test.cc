// The golden outputs of tests/data/chat_format, divided in every way.
#include "common/chat_format/chat_parser.h"

#include <algorithm>
#include <ctime>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/mapped_file.h"
#include "tests/support/chat_goldens.h"
#include "tests/unit/chat_format/parsed.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;
using Kind = ChatEvent::Kind;

// All formats by their names.
template <typename Format>
std::map<std::string, Format> FormatsUpTo(Format last) {
  std::map<std::string, Format> formats;
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    formats.emplace(NameOf(static_cast<Format>(i)), static_cast<Format>(i));
  }
  return formats;
}
const std::map<std::string, ToolCallFormat> kCallFormats = FormatsUpTo(kLastToolCallFormat);
const std::map<std::string, ReasoningFormat> kReasoningFormats = FormatsUpTo(kLastReasoningFormat);

Json ToJson(const ChatEvent& event) {
  switch (event.kind) {
    case Kind::kContent:
      return {"content", event.text};
    case Kind::kReasoning:
      return {"reasoning", event.text};
    case Kind::kCallBegin:
      return event.id.empty() ? Json{"call", event.text} : Json{"call", event.text, event.id};
    case Kind::kArguments:
      return {"arguments", event.text};
    case Kind::kCallEnd:
      return Json::array({"end"});
    case Kind::kCallFailed:
      return {"failed", event.text};
  }
  return {};
}

Json ToJson(const std::vector<ChatEvent>& events) {
  Json out = Json::array();
  for (const ChatEvent& event : events) out.push_back(ToJson(event));
  return out;
}

Json Parse(const ChatParserOptions& options, const std::string& text) {
  return ToJson(ParsedParts(options, PartsOf(text)));
}

class Goldens : public ::testing::TestWithParam<std::string> {};

TEST_P(Goldens, GiveTheSameEventsHoweverTheTextIsDivided) {
  const std::string path = fmt::format("{}/chat_format/{}.json", BATON_TEST_DATA, GetParam());
  const Json file = Json::parse(ReadFile(path).value());
  ASSERT_FALSE(file["cases"].empty());
  ChatParserOptions options;
  options.calls = kCallFormats.at(file["calls"]);
  options.reasoning = kReasoningFormats.at(file["reasoning"]);
  options.tools = std::make_shared<const ToolSchemas>(file["tools"]);
  for (const Json& one : file["cases"]) {
    SCOPED_TRACE(one["name"]);
    options.in_reasoning = one.value("in_reasoning", false);
    const std::string text = one["text"];
    const bool special = one.value("special", text.find("⟪") != std::string::npos);
    options.special = special ? AllMarkersOf(options) : SpecialMarkers();
    const std::vector<OutputPart> parts = PartsOf(text);
    EXPECT_EQ(ToJson(ParsedParts(options, parts)), one["events"]);
    const auto bytes = Divided(parts, [](size_t) { return true; });
    EXPECT_EQ(ToJson(ParsedParts(options, bytes)), one["events"]) << "byte by byte";
    for (size_t at = 1; at < text.size(); ++at) {
      const auto two = Divided(parts, [at](size_t byte) { return byte == at; });
      ASSERT_EQ(ToJson(ParsedParts(options, two)), one["events"]) << "divided before byte " << at;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllFormats,
                         Goldens,
                         ::testing::ValuesIn(ChatGoldens()),
                         [](const auto& test) { return test.param; });

TEST(ChatParser, PassesArgumentsOnAsTheyArrive) {
  ChatParserOptions options;
  options.calls = ToolCallFormat::kHermes;
  ChatParser parser(options);
  EXPECT_THAT(parser.Append("<tool_call>{\"name\": \"f\", \"arguments\": "), ::testing::IsEmpty());
  EXPECT_EQ(parser.Append("{\"city\": \"Zü").size(), 2u);
  const std::vector<ChatEvent> more = parser.Append("rich");
  ASSERT_EQ(more.size(), 1u);
  EXPECT_EQ(more[0], (ChatEvent{Kind::kArguments, "rich", ""}));
}

TEST(ChatParser, WithoutFormatsAllTextIsContent) {
  const std::string text = "<think>a</think><tool_call>{\"name\": \"f\"}</tool_call>";
  EXPECT_EQ(Parse({}, text), Json::array({Json{"content", text}}));
}

TEST(ChatParser, CallsOrReasoningOfHarmonyCanBeLeftInTheText) {
  const std::string text =
      "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary "
      "to=functions.f<|message|>{}<|call|>";
  ChatParserOptions options;
  options.reasoning = ReasoningFormat::kHarmony;
  EXPECT_EQ(Parse(options, text), Json::parse(R"([["reasoning", "a"], ["content", "{}"]])"));
  options.reasoning = ReasoningFormat::kNone;
  options.calls = ToolCallFormat::kHarmony;
  EXPECT_EQ(Parse(options, text),
            Json::parse(R"([["content", "a"], ["call", "f"], ["arguments", "{}"], ["end"]])"));
}

TEST(ChatParser, ArgumentsNestNoDeeperThanOtherJson) {
  ChatParserOptions options;
  options.calls = ToolCallFormat::kHermes;
  const auto last_event = [&](int depth) {
    const std::string object =
        std::string(static_cast<size_t>(depth), '[') + std::string(static_cast<size_t>(depth), ']');
    const std::string text =
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": " + object + "}}</tool_call>";
    return Parse(options, text).back()[0];
  };
  EXPECT_EQ(last_event(59), "end");
  EXPECT_EQ(last_event(60), "content");
  EXPECT_EQ(last_event(100'000), "content");
}

// Of the arguments and the values in them, which must nest no deeper than other JSON.
TEST(ChatParser, ValuesOfOtherSyntaxNestNoDeeperThanOtherJson) {
  const auto repeated = [](std::string_view text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += text;
    return all;
  };
  const auto last_event = [](ToolCallFormat format, const std::string& text) {
    ChatParserOptions options;
    options.calls = format;
    return Parse(options, text).back()[0];
  };
  const auto gemma = [&](int depth) {
    const std::string value = repeated("[", depth) + repeated("]", depth);
    return last_event(ToolCallFormat::kGemma, "<|tool_call>call:f{a:" + value + "}<tool_call|>");
  };
  const auto minimax = [&](int depth) {
    const std::string ns = "]<]minimax[>[";
    const std::string items =
        repeated(ns + "<item>", depth) + "1" + repeated(ns + "</item>", depth);
    return last_event(
        ToolCallFormat::kMiniMaxM3,
        ns + "<invoke name=\"f\">" + ns + "<a>" + items + ns + "</a>" + ns + "</invoke>");
  };
  EXPECT_EQ(gemma(59), "end");
  EXPECT_EQ(gemma(60), "content");
  EXPECT_EQ(gemma(100'000), "content");
  EXPECT_EQ(minimax(59), "end");
  EXPECT_EQ(minimax(60), "content");
  EXPECT_EQ(minimax(100'000), "content");
}

TEST(ChatParser, NamesAndKeysAreBounded) {
  const std::string longest(4096, 'a');
  const std::tuple<ToolCallFormat, const char*, const char*> cases[] = {
      {ToolCallFormat::kGemma, "<|tool_call>call:", "{}<tool_call|>"},
      {ToolCallFormat::kGemma, "<|tool_call>call:f{", ":1}<tool_call|>"},
      {ToolCallFormat::kGemma, "<|tool_call>call:f{a:", "}<tool_call|>"},
      {ToolCallFormat::kMiniMaxM3, "]<]minimax[>[<invoke name=\"", "\">]<]minimax[>[</invoke>"},
      {ToolCallFormat::kFunctionaryMessages, ">>>", "\n{}"},
  };
  for (const auto& [format, begin, end] : cases) {
    ChatParserOptions options;
    options.calls = format;
    EXPECT_EQ(Parse(options, begin + longest + end).back()[0], "end") << begin;
    ChatParser parser(options);
    EXPECT_FALSE(parser.Append(begin + longest + "a").empty()) << begin;
    EXPECT_EQ(Parse(options, begin + longest + "a" + end).back()[0], "content") << begin;
  }
  ChatParserOptions options;
  options.calls = ToolCallFormat::kMiniMaxM3;
  const std::string tag = "]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<" + longest;
  EXPECT_EQ(ChatParser(options).Append(tag), (std::vector<ChatEvent>{{Kind::kContent, tag, ""}}));
}

TEST(ChatParser, TheBoundOfAKeyDividesNoCharacter) {
  ChatParserOptions options;
  options.calls = ToolCallFormat::kGlm;
  const std::string key = std::string(4095, 'a') + "éé";
  const Json events = Parse(options, "<tool_call>f<arg_key>" + key + "</arg_key></tool_call>");
  EXPECT_EQ(events[2][1], "<tool_call>f<arg_key>" + key.substr(0, 4097));
  EXPECT_EQ(events[3], (Json{"content", "é</arg_key></tool_call>"}));
}

TEST(ChatParser, AHeaderOfHarmonyIsBounded) {
  ChatParserOptions options;
  options.calls = ToolCallFormat::kHarmony;
  for (const char* begin : {"<|channel|>analysis ", "to="}) {
    ChatParser parser(options);
    const std::string text = begin + std::string(4097, 'a');
    EXPECT_EQ(parser.Append(text), (std::vector<ChatEvent>{{Kind::kContent, text, ""}}));
  }
}

// Processor time of this thread to parse `pieces` pieces of one line end, in seconds.
double SecondsOf(const ChatParserOptions& options, int pieces) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 3; ++i) {
    ChatParser parser(options);
    timespec before{};
    timespec after{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    for (int piece = 0; piece < pieces; ++piece) parser.Append("\n");
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    best = std::min(best,
                    static_cast<double>(after.tv_sec - before.tv_sec) +
                        1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec));
  }
  return best;
}

// A client can order white space without end by `logit_bias`, and its pieces share the thread with
// those of others.
TEST(ChatParser, LeadingWhiteSpaceTakesTimeInProportionToItsLength) {
  for (const auto& [name, reasoning] : kReasoningFormats) {
    for (const bool begun : {false, true}) {
      ChatParserOptions options;
      options.reasoning = reasoning;
      options.in_reasoning = begun;
      constexpr int kPieces = 10'000;
      const double once = SecondsOf(options, kPieces);
      // The square of the length would take 16 times as long.
      EXPECT_LT(SecondsOf(options, 4 * kPieces), 9 * once) << name << begun;
    }
  }
}

// ---- formats

TEST(ChatFormat, IsDescribedByTheTemplate) {
  const std::pair<const char*, ToolCallFormat> cases[] = {
      {"", ToolCallFormat::kNone},
      {"{{ '<|start|>assistant<|channel|>final<|message|>' }}", ToolCallFormat::kHarmony},
      {"<tool_call>\n{\"name\": <function-name>", ToolCallFormat::kHermes},
      {"<tool_call>\n<function=example>", ToolCallFormat::kQwenCoder},
      {"<tool_call>{function-name}\n<arg_key>", ToolCallFormat::kGlm},
      {"'[TOOL_CALLS]'", ToolCallFormat::kMistral},
      {"<|python_tag|>", ToolCallFormat::kLlamaJson},
      {"[func_name1(params_name1=params_value1", ToolCallFormat::kPythonic},
      {"<|tool_calls_section_begin|>", ToolCallFormat::kKimi},
      {"<｜tool▁calls▁begin｜>", ToolCallFormat::kDeepSeek},
      {"<｜DSML｜function_calls> <｜tool▁calls▁begin｜>", ToolCallFormat::kDsml},
      {"{{- '<|tool_call>call:' + function['name'] + '{' -}}", ToolCallFormat::kGemma},
      {"{%- set ns = ']<]minimax[>[' -%} <tool_call>", ToolCallFormat::kMiniMaxM3},
      {">>>${recipient}\\n${content}", ToolCallFormat::kFunctionaryMessages},
  };
  for (const auto& [text, format] : cases) EXPECT_EQ(DescribedCallFormat(text), format) << text;
  for (const auto& [file, format] : {std::pair("qwen25_style", ToolCallFormat::kHermes),
                                     std::pair("qwen3_style", ToolCallFormat::kHermes),
                                     std::pair("llama31_style", ToolCallFormat::kLlamaJson),
                                     std::pair("mistral_v3_style", ToolCallFormat::kMistral),
                                     std::pair("macros_style", ToolCallFormat::kNone)}) {
    const std::string path = fmt::format("{}/text/templates/{}.jinja", BATON_TEST_DATA, file);
    EXPECT_EQ(DescribedCallFormat(ReadFile(path).value()), format) << file;
  }
}

TEST(ChatFormat, ReasoningIsFoundInTheTemplate) {
  EXPECT_EQ(ReasoningFormatOf("<|im_start|>"), ReasoningFormat::kNone);
  EXPECT_EQ(ReasoningFormatOf("split('</think>')"), ReasoningFormat::kThink);
  EXPECT_EQ(ReasoningFormatOf("[THINK]"), ReasoningFormat::kMistralThink);
  EXPECT_EQ(ReasoningFormatOf("</seed:think>"), ReasoningFormat::kSeedThink);
  EXPECT_EQ(ReasoningFormatOf("<|channel|>"), ReasoningFormat::kHarmony);
  EXPECT_EQ(ReasoningFormatOf("'<|channel>thought\\n<channel|>'"), ReasoningFormat::kGemmaThought);
  EXPECT_EQ(ReasoningFormatOf("set end = '</mm:think>'"), ReasoningFormat::kMiniMaxThink);
}

TEST(ChatFormat, ThePromptMayEndInTheReasoning) {
  EXPECT_TRUE(BeginsReasoning(ReasoningFormat::kThink, "<|assistant|><think>\n"));
  EXPECT_FALSE(BeginsReasoning(ReasoningFormat::kThink, "<think>\n\n</think>\n\n"));
  EXPECT_FALSE(BeginsReasoning(ReasoningFormat::kNone, "<think>"));
  EXPECT_FALSE(BeginsReasoning(ReasoningFormat::kHarmony, "<|start|>assistant"));
  EXPECT_FALSE(BeginsReasoning(ReasoningFormat::kThink, "<think>Hm"));
  EXPECT_TRUE(BeginsReasoning(ReasoningFormat::kGemmaThought, "model\n<|channel>thought\n"));
  EXPECT_FALSE(BeginsReasoning(ReasoningFormat::kGemmaThought, "<|channel>thought\n<channel|>"));
}

TEST(ChatFormat, AContinuedTextMayEndInTheReasoning) {
  const auto begins = [](std::string_view end) {
    return BeginsReasoning(ReasoningFormat::kThink, end, /*continues=*/true);
  };
  EXPECT_TRUE(begins("</think><think>Hm, "));
  EXPECT_TRUE(begins("<think>"));
  EXPECT_FALSE(begins("<think>Hm</think>It"));
  EXPECT_FALSE(begins("It"));
}

}  // namespace
}  // namespace baton
