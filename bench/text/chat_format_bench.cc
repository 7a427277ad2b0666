// The cost of dividing a chat model's output into content, reasoning and calls, in tokens a second.
#include <array>
#include <string>
#include <string_view>

#include <benchmark/benchmark.h>

#include "common/chat_format/chat_parser.h"

namespace baton {
namespace {

constexpr size_t kCases = 9;
constexpr size_t kTokenBytes = 4;  // about the mean of English text

struct Case {
  const char* name;
  ToolCallFormat calls;
  ReasoningFormat reasoning;
  std::string text;
};

std::string Repeated(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

const std::array<Case, kCases>& Cases() {
  static const auto* cases = [] {
    const std::string prose = Repeated("Some words, a < b, and more of them.\n", 100);
    const std::string object = "{\"a\": \"" + Repeated("some text, ", 300) + "\", \"b\": [1, 2]}";
    return new std::array<Case, kCases>{{
        {"content", ToolCallFormat::kHermes, ReasoningFormat::kThink, prose},
        {"reasoning",
         ToolCallFormat::kHermes,
         ReasoningFormat::kThink,
         "<think>" + prose + "</think>Yes"},
        {"hermes",
         ToolCallFormat::kHermes,
         ReasoningFormat::kNone,
         "<tool_call>{\"name\": \"f\", \"arguments\": " + object + "}</tool_call>"},
        {"pythonic",
         ToolCallFormat::kPythonic,
         ReasoningFormat::kNone,
         "<|python_start|>[f(a=\"" + Repeated("some text, ", 300) + "\")]"},
        {"qwen_coder",
         ToolCallFormat::kQwenCoder,
         ReasoningFormat::kNone,
         "<tool_call><function=f><parameter=a>\n" + prose + "\n</parameter></function>"},
        {"deepseek",
         ToolCallFormat::kDeepSeek,
         ReasoningFormat::kNone,
         "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>" + object},
        {"harmony",
         ToolCallFormat::kHarmony,
         ReasoningFormat::kHarmony,
         "<|channel|>analysis<|message|>" + prose + "<|end|>"},
        {"gemma",
         ToolCallFormat::kGemma,
         ReasoningFormat::kNone,
         "<|tool_call>call:f{a:<|\"|>" + prose + "<|\"|>,b:[" + Repeated("12,", 300) + "]}"},
        {"minimax_m3",
         ToolCallFormat::kMiniMaxM3,
         ReasoningFormat::kNone,
         "]<]minimax[>[<invoke name=\"f\">" +
             Repeated("]<]minimax[>[<a>Some words, a < b, and more of them.]<]minimax[>[</a>",
                      100)},
    }};
  }();
  return *cases;
}

void ParseOutput(benchmark::State& state) {
  const Case& one = Cases()[static_cast<size_t>(state.range(0))];
  state.SetLabel(one.name);
  ChatParserOptions options;
  options.calls = one.calls;
  options.reasoning = one.reasoning;
  while (state.KeepRunning()) {
    ChatParser parser(options);
    for (size_t at = 0; at < one.text.size(); at += kTokenBytes) {
      benchmark::DoNotOptimize(parser.Append(std::string_view(one.text).substr(at, kTokenBytes)));
    }
    benchmark::DoNotOptimize(parser.Finish());
  }
  const size_t tokens = (one.text.size() + kTokenBytes - 1) / kTokenBytes;
  state.counters["tokens"] = benchmark::Counter(static_cast<double>(tokens),
                                                benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(ParseOutput)->DenseRange(0, static_cast<int64_t>(kCases) - 1);

}  // namespace
}  // namespace baton

BENCHMARK_MAIN();
