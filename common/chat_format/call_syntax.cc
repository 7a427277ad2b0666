#include "common/chat_format/call_syntax.h"

#include <algorithm>
#include <initializer_list>
#include <map>

#include <fmt/format.h>

namespace baton {
namespace {

// Formats that write JSON calls in an array between two markers.
CallSyntax JsonListSyntax(std::string_view opening, std::string_view closing) {
  CallSyntax syntax = {.style = CallStyle::kJsonList, .tokens = {opening}};
  syntax.openings = {std::string(opening)};
  if (closing.empty()) return syntax;
  syntax.tokens.push_back(closing);
  syntax.closings = {std::string(closing)};
  return syntax;
}

CallSyntax HermesSyntax() {
  // Small models write a brace too many.
  return {.style = CallStyle::kJson,
          .tokens = {"<tool_call>", "</tool_call>"},
          .openings = {"<tool_call>"},
          .closings = {"</tool_call>"},
          .trailer = "}"};
}

CallSyntax LlamaSyntax() {
  return {.style = CallStyle::kBareJson,
          .tokens = {"<|python_tag|>"},
          .openings = {"<|python_tag|>"},
          .bare = true};
}

CallSyntax PythonSyntax() {
  return {.style = CallStyle::kPython,
          .tokens = {"<|python_start|>", "<|python_end|>"},
          .openings = {"<|python_start|>"},
          .closings = {"<|python_end|>"},
          .bare = true};
}

CallSyntax Lfm2Syntax() {
  return {.style = CallStyle::kPython,
          .tokens = {"<|tool_call_start|>", "<|tool_call_end|>"},
          .openings = {"<|tool_call_start|>"},
          .closings = {"<|tool_call_end|>"}};
}

CallSyntax MistralSyntax() {
  return {.style = CallStyle::kMistral,
          .tokens = {"[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"},
          .openings = {"[TOOL_CALLS]"},
          .trailer = "]"};
}

CallSyntax QwenCoderSyntax() {
  // Seed-OSS writes its own tags around the calls.
  return {.style = CallStyle::kTagged,
          .tokens = {"<tool_call>", "</tool_call>", "<seed:tool_call>", "</seed:tool_call>"},
          .openings = {"<function="},
          .sections = {"<tool_call>", "<seed:tool_call>"},
          .closings = {"</function>", "</tool_call>", "</seed:tool_call>"},
          .name_end = ">",
          .key_begin = "<parameter=",
          .key_end = ">",
          .value_end = "</parameter>",
          .in_lines = true};
}

CallSyntax MiniMaxSyntax() {
  return {.style = CallStyle::kTagged,
          .tokens = {"<minimax:tool_call>", "</minimax:tool_call>"},
          .openings = {"<invoke name=\""},
          .sections = {"<minimax:tool_call>"},
          .closings = {"</invoke>", "</minimax:tool_call>"},
          .name_end = "\">",
          .key_begin = "<parameter name=\"",
          .key_end = "\">",
          .value_end = "</parameter>"};
}

CallSyntax DeepSeekSyntax() {
  return {.style = CallStyle::kMarked,
          .tokens = {"<｜tool▁calls▁begin｜>",
                     "<｜tool▁call▁begin｜>",
                     "<｜tool▁sep｜>",
                     "<｜tool▁call▁end｜>",
                     "<｜tool▁calls▁end｜>"},
          .openings = {"<｜tool▁call▁begin｜>"},
          .sections = {"<｜tool▁calls▁begin｜>"},
          .closings = {"<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"},
          .trailer = "```",
          .arguments_begin = "<｜tool▁sep｜>"};
}

CallSyntax FunctionarySyntax() {
  return {.style = CallStyle::kMarked,
          .openings = {"<function="},
          .closings = {"</function>"},
          .arguments_begin = ">"};
}

// `sections`: the names of the sections of calls.
CallSyntax DsmlSyntax(std::initializer_list<std::string_view> sections) {
  CallSyntax syntax = {.style = CallStyle::kTagged,
                       .tokens = {"｜DSML｜"},
                       .openings = {"<｜DSML｜invoke name=\""},
                       .closings = {"</｜DSML｜invoke>"},
                       .name_end = "\">",
                       .key_begin = "<｜DSML｜parameter name=\"",
                       .key_end = "\">",
                       .value_end = "</｜DSML｜parameter>"};
  for (const std::string_view section : sections) {
    syntax.sections.push_back(fmt::format("<｜DSML｜{}>", section));
    syntax.closings.push_back(fmt::format("</｜DSML｜{}>", section));
  }
  return syntax;
}

CallSyntax GlmSyntax() {
  return {
      .style = CallStyle::kTagged,
      .tokens =
          {"<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"},
      .openings = {"<tool_call>"},
      .closings = {"</tool_call>"},
      .key_begin = "<arg_key>",
      .key_end = "</arg_key>",
      .value_begin = "<arg_value>",
      .value_end = "</arg_value>"};
}

CallSyntax KimiSyntax() {
  return {
      .style = CallStyle::kMarkedId,
      .tokens = {"<|tool_calls_section_begin|>",
                 "<|tool_call_section_begin|>",
                 "<|tool_call_begin|>",
                 "<|tool_call_argument_begin|>",
                 "<|tool_call_end|>",
                 "<|tool_calls_section_end|>",
                 "<|tool_call_section_end|>"},
      .openings = {"<|tool_call_begin|>"},
      .sections = {"<|tool_calls_section_begin|>", "<|tool_call_section_begin|>"},
      .closings = {"<|tool_call_end|>", "<|tool_calls_section_end|>", "<|tool_call_section_end|>"},
      .arguments_begin = "<|tool_call_argument_begin|>"};
}

CallSyntax KimiK3Syntax() {
  return {.style = CallStyle::kTagged,
          .tokens = {"<|open|>", "<|close|>", "<|sep|>"},
          .openings = {"<|open|>call tool=\""},
          .sections = {"<|open|>tools<|sep|>"},
          .closings = {"<|close|>call<|sep|>", "<|close|>tools<|sep|>"},
          .name_end = "\"<|sep|>",
          .key_begin = "<|open|>argument key=\"",
          .key_end = "\"<|sep|>",
          .value_end = "<|close|>argument<|sep|>",
          .numbered = true};
}

CallSyntax GemmaSyntax() {
  // A string stands between the marks of a value.
  return {.style = CallStyle::kGemma,
          .tokens = {"<|tool_call>", "<tool_call|>", "<|\"|>"},
          .openings = {"<|tool_call>"},
          .closings = {"<tool_call|>"},
          .value_begin = "<|\"|>",
          .value_end = "<|\"|>"};
}

CallSyntax MiniMaxM3Syntax() {
  // key_begin stands before every tag.
  return {.style = CallStyle::kMiniMaxM3,
          .tokens = {"]<]minimax[>["},
          .openings = {"]<]minimax[>[<invoke name=\""},
          .sections = {"]<]minimax[>[<tool_call>"},
          .closings = {"]<]minimax[>[</invoke>", "]<]minimax[>[</tool_call>"},
          .name_end = "\">",
          .key_begin = "]<]minimax[>[",
          .key_end = ">"};
}

CallSyntax FunctionaryMessagesSyntax() {
  // The marker of the first message is in the prompt.
  return {.style = CallStyle::kMessages, .tokens = {">>>"}, .openings = {">>>"}, .bare = true};
}

CallSyntax HarmonySyntax() {
  return {.tokens = {"<|start|>",
                     "<|channel|>",
                     "<|constrain|>",
                     "<|message|>",
                     "<|end|>",
                     "<|call|>",
                     "<|return|>"}};
}

}  // namespace

const CallSyntax& PlainSyntaxOf(ToolCallFormat format) {
  static const std::map<ToolCallFormat, CallSyntax> formats = {
      {ToolCallFormat::kNone, {}},
      {ToolCallFormat::kHermes, HermesSyntax()},
      {ToolCallFormat::kLlamaJson, LlamaSyntax()},
      {ToolCallFormat::kPythonic, PythonSyntax()},
      {ToolCallFormat::kMistral, MistralSyntax()},
      {ToolCallFormat::kQwenCoder, QwenCoderSyntax()},
      {ToolCallFormat::kDeepSeek, DeepSeekSyntax()},
      {ToolCallFormat::kDsml, DsmlSyntax({"function_calls", "tool_calls"})},
      {ToolCallFormat::kGlm, GlmSyntax()},
      {ToolCallFormat::kKimi, KimiSyntax()},
      {ToolCallFormat::kHarmony, HarmonySyntax()},
      {ToolCallFormat::kApriel, JsonListSyntax("<tool_calls>", "</tool_calls>")},
      {ToolCallFormat::kNemotron, JsonListSyntax("<TOOLCALL>", "</TOOLCALL>")},
      {ToolCallFormat::kGranite, JsonListSyntax("<|tool_call|>", "")},
      {ToolCallFormat::kCohere, JsonListSyntax("<|START_ACTION|>", "<|END_ACTION|>")},
      {ToolCallFormat::kLfm2, Lfm2Syntax()},
      {ToolCallFormat::kMiniMax, MiniMaxSyntax()},
      {ToolCallFormat::kFunctionary, FunctionarySyntax()},
      {ToolCallFormat::kKimiK3, KimiK3Syntax()},
      {ToolCallFormat::kDeepSeekV4, DsmlSyntax({"tool_calls"})},
      {ToolCallFormat::kGemma, GemmaSyntax()},
      {ToolCallFormat::kMiniMaxM3, MiniMaxM3Syntax()},
      {ToolCallFormat::kFunctionaryMessages, FunctionaryMessagesSyntax()},
  };
  return formats.at(format);
}

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
                              &syntax.name_end,
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
