#include "common/chat_format/chat_format.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "common/chat_format/call_syntax.h"
#include "common/chat_format/markers.h"

namespace baton {
namespace {

bool Has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

constexpr std::string_view kCallNames[] = {"none",
                                           "hermes",
                                           "llama_json",
                                           "pythonic",
                                           "mistral",
                                           "qwen_coder",
                                           "deepseek",
                                           "dsml",
                                           "glm",
                                           "kimi",
                                           "harmony",
                                           "apriel",
                                           "nemotron",
                                           "granite",
                                           "cohere",
                                           "lfm2",
                                           "minimax",
                                           "functionary",
                                           "kimi_k3",
                                           "deepseek_v4",
                                           "gemma",
                                           "minimax_m3",
                                           "functionary_messages"};
constexpr std::string_view kReasoningNames[] = {"none",
                                                "think",
                                                "mistral_think",
                                                "seed_think",
                                                "harmony",
                                                "cohere_think",
                                                "kimi_k3_think",
                                                "apriel_think",
                                                "gemma_thought",
                                                "minimax_think"};
static_assert(std::size(kCallNames) == static_cast<size_t>(kLastToolCallFormat) + 1);
static_assert(std::size(kReasoningNames) == static_cast<size_t>(kLastReasoningFormat) + 1);

}  // namespace

std::string_view NameOf(ToolCallFormat format) {
  return kCallNames[static_cast<size_t>(format)];
}

std::string_view NameOf(ReasoningFormat format) {
  return kReasoningNames[static_cast<size_t>(format)];
}

ToolCallFormat DescribedCallFormat(std::string_view chat_template) {
  // The most specific words come first: several formats write <tool_call>.
  constexpr std::pair<std::string_view, ToolCallFormat> kSigns[] = {
      {"<|channel|>", ToolCallFormat::kHarmony},
      {"<|tool_call>", ToolCallFormat::kGemma},
      {"]<]minimax[>[", ToolCallFormat::kMiniMaxM3},
      {">>>${recipient}", ToolCallFormat::kFunctionaryMessages},
      {"｜DSML｜", ToolCallFormat::kDsml},
      {"<｜tool▁calls▁begin｜>", ToolCallFormat::kDeepSeek},
      {"<|tool_calls_section_begin|>", ToolCallFormat::kKimi},
      {"[TOOL_CALLS]", ToolCallFormat::kMistral},
      {"<arg_key>", ToolCallFormat::kGlm},
      {"<function=", ToolCallFormat::kQwenCoder},
      {"<tool_call>", ToolCallFormat::kHermes},
      {"<|python_start|>", ToolCallFormat::kPythonic},
      {"[func_name1(", ToolCallFormat::kPythonic},
      {"<|tool_list_start|>", ToolCallFormat::kLfm2},
      {"\"List of tools: [\"", ToolCallFormat::kLfm2},
      {"<|tool_call|> followed by a JSON list", ToolCallFormat::kGranite},
      {"<|python_tag|>", ToolCallFormat::kLlamaJson},
      {R"({"name": function name, "parameters")", ToolCallFormat::kLlamaJson},
  };
  for (const auto& [sign, format] : kSigns) {
    if (Has(chat_template, sign)) return format;
  }
  return ToolCallFormat::kNone;
}

ReasoningFormat ReasoningFormatOf(std::string_view chat_template) {
  if (Has(chat_template, "<|channel|>")) return ReasoningFormat::kHarmony;
  // Kimi K3's template puts its tags together from these tokens.
  if (Has(chat_template, "<|open|>") && Has(chat_template, "<|sep|>")) {
    return ReasoningFormat::kKimiK3Think;
  }
  for (const ReasoningFormat format : {ReasoningFormat::kSeedThink,
                                       ReasoningFormat::kThink,
                                       ReasoningFormat::kMistralThink,
                                       ReasoningFormat::kCohereThink,
                                       ReasoningFormat::kAprielThink,
                                       ReasoningFormat::kGemmaThought,
                                       ReasoningFormat::kMiniMaxThink}) {
    if (Has(chat_template, MarkersOf(format)->end)) return format;
    if (Has(chat_template, MarkersOf(format)->begin)) return format;
  }
  return ReasoningFormat::kNone;
}

std::optional<ReasoningMarkers> MarkersOf(ReasoningFormat format) {
  switch (format) {
    case ReasoningFormat::kThink:
      return ReasoningMarkers{"<think>", "</think>"};
    case ReasoningFormat::kMistralThink:
      return ReasoningMarkers{"[THINK]", "[/THINK]"};
    case ReasoningFormat::kSeedThink:
      return ReasoningMarkers{"<seed:think>", "</seed:think>"};
    case ReasoningFormat::kCohereThink:
      return ReasoningMarkers{"<|START_THINKING|>", "<|END_THINKING|>"};
    case ReasoningFormat::kKimiK3Think:
      return ReasoningMarkers{"<|open|>think<|sep|>", "<|close|>think<|sep|>"};
    case ReasoningFormat::kAprielThink:
      return ReasoningMarkers{"Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"};
    case ReasoningFormat::kGemmaThought:
      return ReasoningMarkers{"<|channel>thought", "<channel|>"};
    case ReasoningFormat::kMiniMaxThink:
      return ReasoningMarkers{"<mm:think>", "</mm:think>"};
    default:
      return std::nullopt;
  }
}

std::vector<std::string_view> ContentMarkersOf(ReasoningFormat format) {
  switch (format) {
    case ReasoningFormat::kCohereThink:
      return {"<|START_RESPONSE|>", "<|END_RESPONSE|>"};
    case ReasoningFormat::kKimiK3Think:
      return {"<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"};
    default:
      return {};
  }
}

bool BeginsReasoning(ReasoningFormat format, std::string_view end, bool continues) {
  const std::optional<ReasoningMarkers> markers = MarkersOf(format);
  if (!markers.has_value()) return false;
  if (!continues) return Trimmed(end).ends_with(markers->begin);
  const size_t begun = end.rfind(markers->begin);
  if (begun == std::string_view::npos) return false;
  return end.find(markers->end, begun) == std::string_view::npos;
}

bool EndsReasoning(ReasoningFormat format, std::string_view end) {
  const std::optional<ReasoningMarkers> markers = MarkersOf(format);
  if (!markers.has_value()) return false;
  while (!end.empty() && IsSpace(end.back())) end.remove_suffix(1);
  return end.ends_with(markers->end);
}

bool MayBeginReasoning(ReasoningFormat format, std::string_view chat_template) {
  if (format != ReasoningFormat::kThink) return true;
  return Has(chat_template, "thinking") || Has(chat_template, "reasoning_effort");
}

const std::vector<std::string_view>& TokensOf(ToolCallFormat format) {
  return PlainSyntaxOf(format).tokens;
}

std::vector<std::string_view> TokensOf(ReasoningFormat format) {
  if (format == ReasoningFormat::kHarmony) return TokensOf(ToolCallFormat::kHarmony);
  if (format == ReasoningFormat::kKimiK3Think) return {"<|open|>", "<|close|>", "<|sep|>"};
  if (format == ReasoningFormat::kGemmaThought) return {"<|channel>", "<channel|>"};
  const std::optional<ReasoningMarkers> markers = MarkersOf(format);
  if (!markers.has_value()) return {};
  std::vector<std::string_view> tokens = ContentMarkersOf(format);
  tokens.insert(tokens.begin(), {markers->begin, markers->end});
  return tokens;
}

std::vector<std::string_view> AllTokens() {
  std::vector<std::string_view> all;
  const auto add = [&](const std::vector<std::string_view>& tokens) {
    all.insert(all.end(), tokens.begin(), tokens.end());
  };
  for (int i = 0; i <= static_cast<int>(kLastToolCallFormat); ++i) {
    add(TokensOf(static_cast<ToolCallFormat>(i)));
  }
  for (int i = 0; i <= static_cast<int>(kLastReasoningFormat); ++i) {
    add(TokensOf(static_cast<ReasoningFormat>(i)));
  }
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

}  // namespace baton
