// Random outputs in which the syntax of all formats, markup, other languages and broken characters
// are mixed and cut, read by the parser of each format.
#include <algorithm>
#include <cstdint>
#include <ctime>
#include <limits>
#include <memory>
#include <random>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/chat_format/call_syntax.h"
#include "common/chat_format/chat_parser.h"
#include "common/text/utf8.h"
#include "tests/unit/chat_format/parsed.h"

namespace baton {
namespace {

using Kind = ChatEvent::Kind;

constexpr int kCallFormats = static_cast<int>(kLastToolCallFormat) + 1;
constexpr int kReasoningFormats = static_cast<int>(kLastReasoningFormat) + 1;

// Pieces of outputs. $ stands for the name of a tool, # for a word that occurs once in an output.
constexpr std::string_view kWholeCalls[] = {
    "<tool_call>\n{\"name\": \"$\", \"arguments\": {\"a\": \"#\"}}\n</tool_call>",
    "<tool_call>{\"name\": \"$\", \"arguments\": {\"a\": [1, {\"b\": \"#\"}]}</tool_call>",
    "{\"name\": \"$\", \"parameters\": {\"a\": \"#\"}}",
    "<|python_tag|>{\"name\": \"$\", \"parameters\": {\"a\": \"#\"}}; {\"name\": \"$\", "
    "\"parameters\": {}}",
    "[$(a=\"#\", b=[1, (2, None)]), $()]",
    "<|python_start|>[$(a='#')]<|python_end|>",
    "[TOOL_CALLS][{\"name\": \"$\", \"arguments\": {\"a\": \"#\"}}, {\"name\": \"$\", "
    "\"arguments\": {}}]",
    "[TOOL_CALLS]$[ARGS]{\"a\": \"#\"}",
    "[TOOL_CALLS]$[CALL_ID]123456789[ARGS]{\"a\": \"#\"}",
    "<tool_call>\n<function=$>\n<parameter=a>\n#\n</parameter>\n<parameter=b>\n12\n</parameter>\n</"
    "function>\n</tool_call>",
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>$<｜tool▁sep｜>{\"a\": "
    "\"#\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>$\n```json\n{\"a\": "
    "\"#\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"$\">\n<｜DSML｜parameter name=\"a\" "
    "string=\"true\">#</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    "<tool_call>$\n<arg_key>a</arg_key>\n<arg_value>#</arg_value>\n<arg_key>b</"
    "arg_key>\n<arg_value>12</arg_value>\n</tool_call>",
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.$:0<|tool_call_argument_begin|>{"
    "\"a\": \"#\"}<|tool_call_end|><|tool_calls_section_end|>",
    "<|channel|>commentary to=functions.$ <|constrain|>json<|message|>{\"a\": \"#\"}<|call|>",
    "<tool_calls>[{\"name\": \"$\", \"arguments\": {\"a\": \"#\"}}]</tool_calls>",
    "<tool_calls>\n{\"name\": \"$\", \"arguments\": {\"a\": \"#\"}}\n</tool_calls>",
    "<TOOLCALL>[{\"name\": \"$\", \"arguments\": {\"a\": \"#\"}}]</TOOLCALL>",
    "<|tool_call|>[{\"name\": \"$\", \"arguments\": {\"a\": \"#\"}}]",
    "<|START_ACTION|>[\n    {\"tool_name\": \"$\", \"parameters\": {\"a\": "
    "\"#\"}}\n]<|END_ACTION|>",
    "<|tool_call_start|>[$(a='#')]<|tool_call_end|>",
    "<minimax:tool_call>\n<invoke name=\"$\">\n<parameter "
    "name=\"a\">#</parameter>\n</invoke>\n</minimax:tool_call>",
    "<function=$>{\"a\": \"#\"}</function>",
    "<|open|>tools<|sep|><|open|>call tool=\"$\" index=\"1\"<|sep|><|open|>argument key=\"a\" "
    "type=\"string\"<|sep|>#<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
    "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"$\">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
    "<|tool_call>call:${a:<|\"|>#<|\"|>,b:[1,{c:None,d:#}]}<tool_call|>",
    "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"$\">]<]minimax[>[<a>#]<]minimax[>[</a>"
    "]<]minimax[>[<b>]<]minimax[>[<item>12]<]minimax[>[</item>]<]minimax[>[<item>#]<]minimax[>[</"
    "item>]<]minimax[>[</b>]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>",
    ">>>$\n{\"a\": \"#\"}",
    "$\n{\"a\": \"#\"}>>>$\n{}",
};
constexpr std::string_view kOtherPieces[] = {
    "<think>#\n</think>\n",
    "[THINK]#[/THINK]",
    "<seed:think>#</seed:think>",
    "<|channel>thought\n#<channel|>",
    "<mm:think>#</mm:think>",
    "<think>",
    "</think>",
    "<|channel|>analysis<|message|>#<|end|><|start|>assistant",
    "<|channel|>final<|message|>#",
    "<|start|>",
    "<|end|>",
    "<|message|>",
    "<|channel|>",
    "<|return|>",
    "<|constrain|>",
    "</tool_call>",
    "<tool_call>",
    "<function=",
    "</function>",
    "<parameter=",
    "</parameter>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "<|tool_call_end|>",
    "<|tool_calls_section_end|>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
    "<｜DSML｜",
    "<|START_THINKING|>#<|END_THINKING|>",
    "<|START_RESPONSE|>#<|END_RESPONSE|>",
    "<|open|>think<|sep|>#<|close|>think<|sep|>",
    "<|open|>response<|sep|>#<|close|>response<|sep|>",
    "Here are my reasoning steps:#[BEGIN FINAL RESPONSE]",
    "<|open|>",
    "<|close|>",
    "<|sep|>",
    "</tool_calls>",
    "</parameter>",
    "</invoke>",
    "</｜DSML｜invoke>",
    "<|python_end|>",
    "<｜",
    "<|",
    "```",
    "```json\n",
    "\n",
    "  ",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "'",
    "\\",
    ",",
    ";",
    "null",
    " # ",
    "#",
    "a < b && c > d #",
    "<div class=\"x\">#</div>",
    "| # | b |\n|---|---|\n",
    "是的，好。#",
    "Größe # ñ",
    "नमस्ते #",
    "🙂 # 👩‍👩‍👧",
    "\xEF\xBF\xBD #",
    "{\"name\": \"#\", \"age\": 3}",
    "[#](http://x)",
    "print(\"#\")",
    "，",
    "｝",
    "{\"a\": 66}，",
    "to=functions.$ ",
    "<|tool_call>",
    "<tool_call|>",
    "<|\"|>",
    "call:${",
    ",#:",
    "<|channel>",
    "]<]minimax[>[",
    "]<]minimax[>[<item>",
    "]<]minimax[>[</item>",
    "]<]minimax[>[<#>",
    "]<]minimax[>[</invoke>",
    ">>>",
    ">>>all\n#",
    "all\n",
    "$\n",
    "name here #",
};
// Bytes that no valid text has. They come from no tokenizer, but must do no harm.
constexpr std::string_view kBrokenBytes[] = {
    "\xC3", "\xE4\xB8", "\x80\x80", "\xF0\x9F", "\xC0\xAF"};

std::shared_ptr<const ToolSchemas> Tools() {
  return std::make_shared<const ToolSchemas>(nlohmann::ordered_json::parse(
      R"([{"name": "alpha", "parameters": {"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}},
          {"name": "beta"}])"));
}

struct RandomOutput {
  std::vector<OutputPart> parts;
  std::string text;   // of all parts
  bool valid = true;  // UTF-8
};

class Generator final {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  bool Chance(double probability) { return std::bernoulli_distribution(probability)(random_); }
  size_t Below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
  ToolCallFormat Calls() { return static_cast<ToolCallFormat>(Below(kCallFormats)); }
  ReasoningFormat Reasoning() { return static_cast<ReasoningFormat>(Below(kReasoningFormats)); }

  // An output for a parser of `markers`; with `special`, most of them are special tokens in it.
  RandomOutput Next(const std::vector<std::string_view>& markers, bool special) {
    RandomOutput out;
    std::string text;
    const size_t pieces = 1 + Below(7);
    for (size_t i = 0; i < pieces; ++i) text += Piece();
    text = Cut(text);
    const bool broken = Chance(0.1);
    if (broken) text.insert(Below(text.size() + 1), Pick(kBrokenBytes));
    out.valid = IsValidUtf8(text);
    out.text = text;
    out.parts = special ? WithSpecial(text, markers) : std::vector<OutputPart>{{text}};
    return out;
  }

 private:
  template <size_t n>
  std::string_view Pick(const std::string_view (&list)[n]) {
    return list[Below(n)];
  }

  std::string Piece() {
    const std::string_view form = Chance(0.4) ? Pick(kWholeCalls) : Pick(kOtherPieces);
    std::string out;
    for (const char c : form) {
      if (c == '$') {
        out += Name();
      } else if (c == '#') {
        out += fmt::format("w{}w", ++words_);
      } else {
        out += c;
      }
    }
    return Chance(0.1) ? Cut(out) : out;
  }

  std::string_view Name() {
    constexpr std::string_view kNames[] = {"alpha", "beta", "alpha", "gamma"};
    return Pick(kNames);
  }

  // A part of `text`, of whole characters.
  std::string Cut(const std::string& text) {
    size_t begin = Chance(0.15) ? Below(text.size() + 1) : 0;
    size_t end = Chance(0.3) ? begin + Below(text.size() - begin + 1) : text.size();
    const auto inside = [&](size_t at) {
      return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
    };
    while (inside(begin)) ++begin;
    while (inside(end)) ++end;
    return text.substr(begin, std::max(begin, end) - begin);
  }

  std::vector<OutputPart> WithSpecial(std::string_view text,
                                      const std::vector<std::string_view>& markers) {
    std::vector<OutputPart> parts = {{}};
    while (!text.empty()) {
      const auto marker = std::ranges::find_if(
          markers, [&](std::string_view one) { return text.starts_with(one); });
      if (marker == markers.end()) {
        parts.back().text += text.front();
        text.remove_prefix(1);
        continue;
      }
      if (Chance(0.8)) {
        parts.push_back({std::string(*marker), true});
        parts.push_back({});
      } else {
        parts.back().text += *marker;
      }
      text.remove_prefix(marker->size());
    }
    std::erase_if(parts, [](const OutputPart& part) { return part.text.empty(); });
    return parts;
  }

  std::mt19937_64 random_;
  int words_ = 0;
};

std::vector<std::string_view> MarkersOfFormats(const ChatParserOptions& options) {
  std::vector<std::string_view> markers = TokensOf(options.calls);
  for (const std::string_view marker : TokensOf(options.reasoning)) markers.push_back(marker);
  return markers;
}

std::string AllText(const std::vector<ChatEvent>& events) {
  std::string all;
  for (const ChatEvent& event : events) all += event.text + event.id;
  return all;
}

// The words that may be lost: in the header of a message of harmony, and on the line of a fence.
std::string WithoutLostWords(const ChatParserOptions& options, std::string text) {
  const bool harmony =
      options.calls == ToolCallFormat::kHarmony || options.reasoning == ReasoningFormat::kHarmony;
  if (harmony) {
    size_t end = 0;
    while ((end = text.find("<|message|>", end)) != std::string::npos) {
      size_t begin = 0;
      for (const char* marker : {"<|message|>", "<|end|>", "<|call|>", "<|return|>"}) {
        const size_t at = end == 0 ? std::string::npos : text.rfind(marker, end - 1);
        if (at != std::string::npos) begin = std::max(begin, at + 1);
      }
      text.replace(begin, end - begin, end - begin, ' ');
      ++end;
    }
  }
  if (options.calls != ToolCallFormat::kDeepSeek) return text;
  for (size_t at = text.find("```"); at != std::string::npos; at = text.find("```", at + 1)) {
    const size_t end = std::min(text.find_first_of("\n{<", at), text.size());
    text.replace(at, end - at, end - at, ' ');
  }
  return text;
}

void ExpectNothingLost(const ChatParserOptions& options,
                       const RandomOutput& output,
                       const std::vector<ChatEvent>& events) {
  const std::string text = WithoutLostWords(options, output.text);
  const std::string all = AllText(events);
  static const std::regex word_form("w[0-9]+w");
  for (auto word = std::sregex_iterator(text.begin(), text.end(), word_form);
       word != std::sregex_iterator();
       ++word) {
    EXPECT_NE(all.find(word->str()), std::string::npos) << word->str() << " is lost";
  }
}

// Calls come one after the other, have names and arguments, and were written.
void ExpectRightCalls(const ChatParserOptions& options,
                      const RandomOutput& output,
                      bool special,
                      const std::vector<ChatEvent>& events) {
  bool in_call = false;
  std::string arguments;
  for (const ChatEvent& event : events) {
    switch (event.kind) {
      case Kind::kCallBegin:
        EXPECT_FALSE(in_call);
        EXPECT_TRUE(event.text == "alpha" || event.text == "beta" || event.text == "gamma" ||
                    options.calls == ToolCallFormat::kHarmony || special)
            << event.text;
        EXPECT_EQ(event.text.find_first_of(" \n\t{}\"<"), std::string::npos) << event.text;
        EXPECT_NE(output.text.find(event.text), std::string::npos);
        EXPECT_TRUE(event.text != "gamma" || special || options.calls == ToolCallFormat::kHarmony);
        EXPECT_TRUE(!options.offered_only || options.tools->Has(event.text)) << event.text;
        in_call = true;
        arguments.clear();
        break;
      case Kind::kArguments:
        EXPECT_TRUE(in_call);
        arguments += event.text;
        break;
      case Kind::kCallEnd:
        EXPECT_TRUE(in_call);
        EXPECT_TRUE(IsJson(arguments) && arguments.starts_with('{')) << arguments;
        in_call = false;
        break;
      case Kind::kCallFailed:
        EXPECT_TRUE(in_call);
        in_call = false;
        break;
      default:
        EXPECT_FALSE(in_call);
    }
  }
  EXPECT_FALSE(in_call);
}

// Ordinary text makes no call where the markers are special tokens.
void ExpectNoCallOfText(const ChatParserOptions& options,
                        const RandomOutput& output,
                        const std::vector<ChatEvent>& events) {
  const CallSyntax syntax = SyntaxOf(options.calls, AllMarkersOf(options));
  const bool plain = options.calls != ToolCallFormat::kHarmony && (syntax.bare || !syntax.special);
  const auto any = [](const OutputPart& part) { return part.special; };
  if (plain || std::ranges::any_of(output.parts, any)) return;
  for (const ChatEvent& event : events) {
    EXPECT_NE(event.kind, Kind::kCallBegin);
    EXPECT_TRUE(options.in_reasoning || event.kind != Kind::kReasoning);
  }
}

void ExpectWholeCharacters(const ChatParserOptions& options, const std::vector<OutputPart>& parts) {
  ChatParser parser(options);
  std::vector<ChatEvent> events;
  const auto add = [](const std::vector<ChatEvent>& more) {
    for (const ChatEvent& event : more) EXPECT_TRUE(IsValidUtf8(event.text)) << event.text;
  };
  for (const OutputPart& part : parts) {
    add(part.special ? parser.AppendSpecial(part.text) : parser.Append(part.text));
  }
  add(parser.Finish());
}

std::string Shown(const ChatParserOptions& options, const RandomOutput& output, bool special) {
  std::string out = fmt::format("calls {}, reasoning {}, begun {}, offered only {}, special {}: ",
                                static_cast<int>(options.calls),
                                static_cast<int>(options.reasoning),
                                options.in_reasoning,
                                options.offered_only,
                                special);
  for (const OutputPart& part : output.parts) {
    out += part.special ? "⟪" + part.text + "⟫" : part.text;
  }
  return out;
}

void TestRandomOutputs(uint64_t seed, int cases) {
  Generator generator(seed);
  const auto tools = Tools();
  for (int i = 0; i < cases && !testing::Test::HasFailure(); ++i) {
    ChatParserOptions options;
    options.calls = generator.Calls();
    options.reasoning = generator.Reasoning();
    options.in_reasoning = generator.Chance(0.2);
    options.tools = tools;
    options.offered_only = generator.Chance(0.2);
    const bool special = generator.Chance(0.5);
    if (special) options.special = AllMarkersOf(options);
    const RandomOutput output = generator.Next(MarkersOfFormats(options), special);
    SCOPED_TRACE(Shown(options, output, special));
    const std::vector<ChatEvent> events = ParsedParts(options, output.parts);
    ExpectNothingLost(options, output, events);
    ExpectRightCalls(options, output, special, events);
    if (special) ExpectNoCallOfText(options, output, events);
    const auto bytes = Divided(output.parts, [](size_t) { return true; });
    const auto some = Divided(output.parts, [&](size_t) { return generator.Chance(0.2); });
    if (!output.valid) {
      ParsedParts(options, bytes);
      continue;
    }
    EXPECT_EQ(ParsedParts(options, bytes), events) << "byte by byte";
    EXPECT_EQ(ParsedParts(options, some), events) << "divided at random";
    ExpectWholeCharacters(options, some);
    ExpectWholeCharacters(options, bytes);
  }
}

TEST(MixedFormats, RandomOutputsKeepTheContract) {
  TestRandomOutputs(1, 10'000);
}

TEST(MixedFormats, DISABLED_ManyRandomOutputsKeepTheContract) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  TestRandomOutputs(seed, 1'000'000);
}

// Processor time of this thread to parse `text`, in pieces of 4 bytes, in seconds.
double SecondsOf(const ChatParserOptions& options, const std::string& text) {
  timespec before{};
  timespec after{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
  ChatParser parser(options);
  for (size_t at = 0; at < text.size(); at += 4) {
    parser.Append(std::string_view(text).substr(at, 4));
  }
  parser.Finish();
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
  return static_cast<double>(after.tv_sec - before.tv_sec) +
         1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec);
}

// The square of the length would take 16 times as long.
TEST(MixedFormats, TakeTimeInProportionToTheirLength) {
  constexpr size_t kBytes = 8'000;
  std::vector<std::string_view> pieces(std::begin(kWholeCalls), std::end(kWholeCalls));
  pieces.insert(pieces.end(), std::begin(kOtherPieces), std::end(kOtherPieces));
  for (int calls = 0; calls < kCallFormats; ++calls) {
    for (const std::string_view piece : pieces) {
      ChatParserOptions options;
      options.calls = static_cast<ToolCallFormat>(calls);
      options.reasoning = options.calls == ToolCallFormat::kHarmony ? ReasoningFormat::kHarmony
                                                                    : ReasoningFormat::kThink;
      std::string text;
      for (size_t bytes = 0; bytes < kBytes; bytes += piece.size()) text += piece;
      std::string longer;
      for (int i = 0; i < 4; ++i) longer += text;
      double once = std::numeric_limits<double>::infinity();
      double more = once;
      for (int i = 0; i < 5 && more >= 9 * once; ++i) {
        once = std::min(once, SecondsOf(options, text));
        more = std::min(more, SecondsOf(options, longer));
      }
      EXPECT_LT(more, 9 * once) << calls << ": " << piece;
    }
  }
}

}  // namespace
}  // namespace baton
