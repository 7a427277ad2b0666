#include "common/chat_format/chat_format.h"

#include <utility>

#include "common/chat_format/markers.h"

namespace baton {
namespace {

const std::vector<std::string_view> kHarmonyTokens = {"<|start|>",
                                                      "<|channel|>",
                                                      "<|constrain|>",
                                                      "<|message|>",
                                                      "<|end|>",
                                                      "<|call|>",
                                                      "<|return|>"};

bool Has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

ToolCallFormat ToolCallFormatOf(std::string_view chat_template) {
  // The most specific markers come first: several formats write <tool_call>.
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
  for (const ReasoningFormat format : {ReasoningFormat::kSeedThink,
                                       ReasoningFormat::kThink,
                                       ReasoningFormat::kMistralThink,
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
    case ReasoningFormat::kGemmaThought:
      return ReasoningMarkers{"<|channel>thought", "<channel|>"};
    case ReasoningFormat::kMiniMaxThink:
      return ReasoningMarkers{"<mm:think>", "</mm:think>"};
    default:
      return std::nullopt;
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

std::vector<std::string_view> TokensOf(ToolCallFormat format) {
  switch (format) {
    case ToolCallFormat::kNone:
      return {};
    case ToolCallFormat::kHermes:
      return {"<tool_call>", "</tool_call>"};
    case ToolCallFormat::kLlamaJson:
      return {"<|python_tag|>"};
    case ToolCallFormat::kPythonic:
      return {"<|python_start|>", "<|python_end|>"};
    case ToolCallFormat::kMistral:
      return {"[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"};
    case ToolCallFormat::kQwenCoder:
      return {"<tool_call>", "</tool_call>", "<seed:tool_call>", "</seed:tool_call>"};
    case ToolCallFormat::kDeepSeek:
      return {"<｜tool▁calls▁begin｜>",
              "<｜tool▁call▁begin｜>",
              "<｜tool▁sep｜>",
              "<｜tool▁call▁end｜>",
              "<｜tool▁calls▁end｜>"};
    case ToolCallFormat::kDsml:
      return {"｜DSML｜"};
    case ToolCallFormat::kGlm:
      return {
          "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"};
    case ToolCallFormat::kKimi:
      return {"<|tool_calls_section_begin|>",
              "<|tool_call_section_begin|>",
              "<|tool_call_begin|>",
              "<|tool_call_argument_begin|>",
              "<|tool_call_end|>",
              "<|tool_calls_section_end|>",
              "<|tool_call_section_end|>"};
    case ToolCallFormat::kHarmony:
      return kHarmonyTokens;
    case ToolCallFormat::kGemma:
      return {"<|tool_call>", "<tool_call|>", "<|\"|>"};
    case ToolCallFormat::kMiniMaxM3:
      return {"]<]minimax[>["};
    case ToolCallFormat::kFunctionaryMessages:
      return {">>>"};
  }
  return {};
}

std::vector<std::string_view> TokensOf(ReasoningFormat format) {
  if (format == ReasoningFormat::kHarmony) return kHarmonyTokens;
  if (format == ReasoningFormat::kGemmaThought) return {"<|channel>", "<channel|>"};
  const std::optional<ReasoningMarkers> markers = MarkersOf(format);
  if (!markers.has_value()) return {};
  return {markers->begin, markers->end};
}

}  // namespace baton
