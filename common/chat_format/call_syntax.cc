#include "common/chat_format/call_syntax.h"

#include <algorithm>

namespace baton {
namespace {

CallSyntax PlainSyntaxOf(ToolCallFormat format) {
  switch (format) {
    case ToolCallFormat::kHermes:
      // Small models write a brace too many.
      return {.openings = {"<tool_call>"}, .closings = {"</tool_call>"}, .trailer = "}"};
    case ToolCallFormat::kLlamaJson:
      return {.openings = {"<|python_tag|>"}};
    case ToolCallFormat::kPythonic:
      return {.openings = {"<|python_start|>"}, .closings = {"<|python_end|>"}};
    case ToolCallFormat::kMistral:
      return {.openings = {"[TOOL_CALLS]"}, .trailer = "]"};
    case ToolCallFormat::kQwenCoder:
      // Seed-OSS writes its own tags around the calls.
      return {.openings = {"<function="},
              .sections = {"<tool_call>", "<seed:tool_call>"},
              .closings = {"</function>", "</tool_call>", "</seed:tool_call>"},
              .name_end = ">",
              .key_begin = "<parameter=",
              .key_end = ">",
              .value_end = "</parameter>",
              .in_lines = true};
    case ToolCallFormat::kDeepSeek:
      return {.openings = {"<｜tool▁call▁begin｜>"},
              .sections = {"<｜tool▁calls▁begin｜>"},
              .closings = {"<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"},
              .trailer = "```",
              .arguments_begin = "<｜tool▁sep｜>"};
    case ToolCallFormat::kDsml:
      // DeepSeek V4 names the section tool_calls.
      return {
          .openings = {"<｜DSML｜invoke name=\""},
          .sections = {"<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"},
          .closings = {"</｜DSML｜invoke>", "</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"},
          .name_end = "\">",
          .key_begin = "<｜DSML｜parameter name=\"",
          .key_end = "\">",
          .value_end = "</｜DSML｜parameter>"};
    case ToolCallFormat::kGlm:
      return {.openings = {"<tool_call>"},
              .closings = {"</tool_call>"},
              .key_begin = "<arg_key>",
              .key_end = "</arg_key>",
              .value_begin = "<arg_value>",
              .value_end = "</arg_value>"};
    case ToolCallFormat::kKimi:
      return {.openings = {"<|tool_call_begin|>"},
              .sections = {"<|tool_calls_section_begin|>", "<|tool_call_section_begin|>"},
              .closings = {"<|tool_call_end|>",
                           "<|tool_calls_section_end|>",
                           "<|tool_call_section_end|>"},
              .arguments_begin = "<|tool_call_argument_begin|>"};
    case ToolCallFormat::kGemma:
      // A string stands between the marks of a value.
      return {.openings = {"<|tool_call>"},
              .closings = {"<tool_call|>"},
              .value_begin = "<|\"|>",
              .value_end = "<|\"|>"};
    case ToolCallFormat::kMiniMaxM3:
      // key_begin stands before every tag.
      return {.openings = {"]<]minimax[>[<invoke name=\""},
              .sections = {"]<]minimax[>[<tool_call>"},
              .closings = {"]<]minimax[>[</invoke>", "]<]minimax[>[</tool_call>"},
              .name_end = "\">",
              .key_begin = "]<]minimax[>[",
              .key_end = ">"};
    case ToolCallFormat::kFunctionaryMessages:
      return {.openings = {">>>"}};
    default:
      return {};
  }
}

}  // namespace

bool CallSyntax::IsOpening(std::string_view marker) const {
  return std::ranges::find(openings, marker) != openings.end();
}

bool CallSyntax::IsClosing(std::string_view marker) const {
  return std::ranges::find(closings, marker) != closings.end();
}

std::vector<std::string> CallSyntax::Beginnings() const {
  std::vector<std::string> markers = openings;
  markers.insert(markers.end(), sections.begin(), sections.end());
  return markers;
}

std::vector<std::string> CallSyntax::All() const {
  std::vector<std::string> all = Beginnings();
  all.insert(all.end(), closings.begin(), closings.end());
  for (const std::string* one : {&arguments_begin, &key_begin, &value_end}) {
    if (!one->empty()) all.push_back(*one);
  }
  return all;
}

CallSyntax SyntaxOf(ToolCallFormat format, const SpecialMarkers& special) {
  CallSyntax syntax = PlainSyntaxOf(format);
  for (std::vector<std::string>* list : {&syntax.openings, &syntax.sections, &syntax.closings}) {
    for (std::string& marker : *list) marker = special.Signed(marker);
  }
  for (std::string* marker : {&syntax.arguments_begin,
                              &syntax.key_begin,
                              &syntax.key_end,
                              &syntax.value_begin,
                              &syntax.value_end}) {
    *marker = special.Signed(*marker);
  }
  syntax.special = std::ranges::any_of(syntax.openings, [](const std::string& marker) {
    return marker.find(kSpecialSign) != std::string::npos;
  });
  return syntax;
}

}  // namespace baton
