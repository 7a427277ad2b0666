#include "common/grammar/call_grammar.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "common/chat_format/call_syntax.h"
#include "common/grammar/format_parts.h"
#include "common/grammar/nested_calls.h"
#include "common/grammar/tagged_calls.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

// Calls in one output. A model that repeats itself would else call until its last token.
constexpr int kMaxCalls = 16;

constexpr std::string_view kHarmonyReasoning = "<|channel|>analysis<|message|>";
constexpr std::string_view kHarmonyAnswer = "<|channel|>final<|message|>";
constexpr std::string_view kHarmonyNext = "<|end|><|start|>assistant";
constexpr std::string_view kUser = "all";  // the recipient of text in a message of Functionary

// How a format writes calls: section_begin (call (separator call)*) section_end. The name stands
// between `begin` and `name_end`.
struct CallForm {
  std::string section_begin = {};
  std::string begin = {};
  std::string name_end = {};
  std::string end = {};
  std::string section_end = {};
  std::string separator = {};
  bool numbered = false;  // a number of the call follows name_end, then `after_number`
  std::string after_number = {};
  std::vector<std::string_view> excluded = {};  // what would end the call inside of its JSON
  std::string trigger = {};  // text with it is a call; empty: the first line of the first marker
};

// JSON calls in an array between two markers.
CallForm JsonListForm(std::string section_begin, std::string section_end) {
  return {.section_begin = std::move(section_begin),
          .begin = "{\"name\": \"",
          .name_end = "\", \"arguments\": ",
          .end = "}",
          .section_end = std::move(section_end),
          .separator = ", "};
}

// `section`: the name of the section of calls.
CallForm DsmlForm(std::string_view section) {
  return {.section_begin = fmt::format("<｜DSML｜{}>\n", section),
          .begin = "<｜DSML｜invoke name=\"",
          .name_end = "\">\n",
          .end = "</｜DSML｜invoke>\n",
          .section_end = fmt::format("</｜DSML｜{}>", section)};
}

// Of formats that write each argument between tags.
std::optional<CallForm> TaggedFormOf(ToolCallFormat format) {
  switch (format) {
    case ToolCallFormat::kQwenCoder:
      return CallForm{.begin = "<tool_call>\n<function=",
                      .name_end = ">\n",
                      .end = "</function>\n</tool_call>",
                      .separator = "\n"};
    case ToolCallFormat::kDsml:
      return DsmlForm("function_calls");
    case ToolCallFormat::kDeepSeekV4:
      return DsmlForm("tool_calls");
    case ToolCallFormat::kGlm:
      return CallForm{
          .begin = "<tool_call>", .name_end = "\n", .end = "</tool_call>", .separator = "\n"};
    case ToolCallFormat::kMiniMax:
      return CallForm{.section_begin = "<minimax:tool_call>\n",
                      .begin = "<invoke name=\"",
                      .name_end = "\">\n",
                      .end = "</invoke>\n",
                      .section_end = "</minimax:tool_call>"};
    case ToolCallFormat::kKimiK3:
      return CallForm{.section_begin = "<|open|>tools<|sep|>",
                      .begin = "<|open|>call tool=\"",
                      .name_end = "\" index=\"",
                      .end = "<|close|>call<|sep|>",
                      .section_end = "<|close|>tools<|sep|>",
                      .numbered = true,
                      .after_number = "\"<|sep|>"};
    default:
      return std::nullopt;
  }
}

std::optional<CallForm> PlainFormOf(ToolCallFormat format) {
  if (IsTagged(format)) return TaggedFormOf(format);
  switch (format) {
    case ToolCallFormat::kHermes:
      return CallForm{.begin = "<tool_call>\n{\"name\": \"",
                      .name_end = "\", \"arguments\": ",
                      .end = "}\n</tool_call>",
                      .separator = "\n"};
    case ToolCallFormat::kLlamaJson:
      return CallForm{.begin = "{\"name\": \"",
                      .name_end = "\", \"parameters\": ",
                      .end = "}",
                      .separator = "; "};
    case ToolCallFormat::kMistral:
      return JsonListForm("[TOOL_CALLS][", "]");
    case ToolCallFormat::kApriel:
      return JsonListForm("<tool_calls>[", "]</tool_calls>");
    case ToolCallFormat::kNemotron:
      return JsonListForm("<TOOLCALL>[", "]</TOOLCALL>");
    case ToolCallFormat::kGranite:
      return JsonListForm("<|tool_call|>[", "]");
    case ToolCallFormat::kCohere:
      // Without the ids that the model numbers its calls with; the router makes them.
      return CallForm{.section_begin = "<|START_ACTION|>[\n    ",
                      .begin = "{\"tool_name\": \"",
                      .name_end = "\", \"parameters\": ",
                      .end = "}",
                      .section_end = "\n]<|END_ACTION|>",
                      .separator = ",\n    "};
    case ToolCallFormat::kFunctionaryMessages:
      // The prompt ends with the marker of the first message.
      return CallForm{.name_end = "\n", .separator = ">>>"};
    case ToolCallFormat::kFunctionary:
      return CallForm{.begin = "<function=", .name_end = ">", .end = "</function>"};
    case ToolCallFormat::kDeepSeek:
      return CallForm{.section_begin = "<｜tool▁calls▁begin｜>",
                      .begin = "<｜tool▁call▁begin｜>",
                      .name_end = "<｜tool▁sep｜>",
                      .end = "<｜tool▁call▁end｜>",
                      .section_end = "<｜tool▁calls▁end｜>"};
    case ToolCallFormat::kKimi:
      return CallForm{.section_begin = "<|tool_calls_section_begin|>",
                      .begin = "<|tool_call_begin|>functions.",
                      .name_end = ":",
                      .end = "<|tool_call_end|>",
                      .section_end = "<|tool_calls_section_end|>",
                      .numbered = true,
                      .after_number = "<|tool_call_argument_begin|>"};
    case ToolCallFormat::kHarmony:
      // The end of the call is an end token of the model.
      return CallForm{.begin = "<|channel|>commentary to=functions.",
                      .name_end = " <|constrain|>json<|message|>",
                      .excluded = {"<|"}};
    case ToolCallFormat::kGemma:
      return CallForm{
          .begin = "<|tool_call>call:", .end = "<tool_call|>", .trigger = "<|tool_call>"};
    case ToolCallFormat::kMiniMaxM3:
      // The parser reads calls without a section, too.
      return CallForm{.section_begin = "]<]minimax[>[<tool_call>\n",
                      .begin = "]<]minimax[>[<invoke name=\"",
                      .name_end = "\">",
                      .end = "]<]minimax[>[</invoke>\n",
                      .section_end = "]<]minimax[>[</tool_call>",
                      .trigger = "]<]minimax[>["};
    default:
      return std::nullopt;
  }
}

std::optional<CallForm> FormOf(const MarkedFormats& formats) {
  std::optional<CallForm> form = PlainFormOf(formats.calls);
  if (!form.has_value()) return form;
  for (std::string* text : {&form->section_begin,
                            &form->begin,
                            &form->name_end,
                            &form->end,
                            &form->section_end,
                            &form->separator,
                            &form->after_number,
                            &form->trigger}) {
    std::string with_signs = formats.Signed(*text);
    // JSON has no special tokens, so it needs no other bound.
    if (with_signs != *text) form->excluded.clear();
    *text = std::move(with_signs);
  }
  return form;
}

Status NoForm() {
  return InvalidArgument("the model has no format for calls of tools");
}

// The names of tools stand in the text of the format, so they must not end it.
Status CheckNames(ToolCallFormat format, const std::vector<CallableTool>& tools) {
  for (const CallableTool& tool : tools) {
    const auto plain = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '_' || c == '-' || c == '.' || c == ':' || c == '/';
    };
    if (format == ToolCallFormat::kFunctionaryMessages && tool.name == kUser) {
      return InvalidArgument("the tool's name '{}' means the user in the format of this model",
                             tool.name);
    }
    if (!tool.name.empty() && std::ranges::all_of(tool.name, plain)) continue;
    return InvalidArgument(
        "the tool's name '{}' is not supported for constrained calls: it must consist of letters, "
        "digits and _ - . : /",
        tool.name.substr(0, 64));
  }
  return OkStatus();
}

// One call of each tool.
StatusOr<Json> CallsOf(const MarkedFormats& formats,
                       const CallForm& form,
                       const std::vector<CallableTool>& tools) {
  Json calls = Json::array();
  size_t written = 0;
  for (const CallableTool& tool : tools) {
    Json content = JsonSchemaOf(tool.parameters, form.excluded);
    if (IsTagged(formats.calls)) {
      BATON_ASSIGN_OR_RETURN(content, TaggedArguments(formats, tool, written));
    } else if (IsNested(formats.calls)) {
      BATON_ASSIGN_OR_RETURN(content, NestedArguments(formats, tool));
    }
    if (form.numbered) {
      content = SequencePart(Json::array({{{"type", "regex"}, {"pattern", "[0-9]{1,3}"}},
                                          TextPart(form.after_number),
                                          std::move(content)}));
    }
    calls.push_back(TagPart(form.begin + tool.name + form.name_end, std::move(content), form.end));
  }
  return calls;
}

// `call`, or with `one` false several with `separator` between them.
Json Several(Json call, std::string_view separator, bool one) {
  if (one) return call;
  Json next = separator.empty() ? call : SequencePart(Json::array({TextPart(separator), call}));
  return SequencePart(Json::array(
      {std::move(call),
       {{"type", "repeat"}, {"min", 0}, {"max", kMaxCalls - 1}, {"content", std::move(next)}}}));
}

// f(a="x", b=1): the required arguments, then any of the others in order. Where no argument is
// required, each is written once more for each argument with which a call may begin before it.
StatusOr<Json> PythonCall(const CallableTool& tool,
                          const CallArguments& arguments,
                          size_t& written) {
  std::vector<const CallArgument*> others;
  const auto argument = [](const CallArgument& one, bool first) {
    const std::string key = (first ? "" : ", ") + one.name + "=";
    return SequencePart(Json::array({TextPart(key), JsonSchemaOf(one.schema)}));
  };
  Json elements = Json::array({TextPart(tool.name + "(")});
  for (const CallArgument& one : arguments.declared) {
    if (one.required) {
      elements.push_back(argument(one, elements.size() == 1));
    } else {
      others.push_back(&one);
    }
  }
  const auto add_following = [&](size_t from, Json& to) {
    for (size_t i = from; i < others.size(); ++i) {
      to.push_back(OptionalPart(argument(*others[i], false)));
    }
  };
  if (elements.size() > 1) {
    add_following(0, elements);
  } else if (!others.empty()) {
    Json starts = Json::array();
    for (size_t i = 0; i < others.size(); ++i) {
      const size_t bytes = others[i]->schema.dump().size() * i;
      BATON_RETURN_IF_ERROR(CountArgumentBytes(tool, bytes, written));
    }
    for (size_t i = 0; i < others.size(); ++i) {
      Json start = Json::array({argument(*others[i], true)});
      add_following(i + 1, start);
      starts.push_back(SequencePart(std::move(start)));
    }
    elements.push_back(OptionalPart(OrPart(std::move(starts))));
  }
  elements.push_back(TextPart(")"));
  return SequencePart(std::move(elements));
}

// The inside of a list of Python's calls.
StatusOr<Json> PythonCalls(const std::vector<CallableTool>& tools, bool one) {
  Json calls = Json::array();
  size_t written = 0;
  for (const CallableTool& tool : tools) {
    BATON_ASSIGN_OR_RETURN(const auto alternatives, ReadArguments(tool, written));
    for (const CallArguments& arguments : alternatives) {
      BATON_ASSIGN_OR_RETURN(Json call, PythonCall(tool, arguments, written));
      calls.push_back(std::move(call));
    }
  }
  return Several(OrPart(std::move(calls)), ", ", one);
}

// What stands around such a list.
std::pair<std::string, std::string> PythonBrackets(const MarkedFormats& formats) {
  if (formats.calls != ToolCallFormat::kLfm2) return {"[", "]"};
  return {formats.Signed("<|tool_call_start|>["), formats.Signed("]<|tool_call_end|>")};
}

// Text that is no call where calls have no marker: it begins with another character than calls.
Json TextWithoutCall() {
  const Json begin = {{"type", "regex"}, {"pattern", "[^{\\[< \\n\\r\\t]"}};
  return OptionalPart(SequencePart(Json::array({begin, AnyTextPart({})})));
}

// The answer or the calls of a model that writes messages in channels. Comments may precede them.
Json HarmonyText(const MarkedFormats& formats, GrammarPart calls) {
  const Json comment = TagPart(formats.Signed("<|channel|>commentary<|message|>"),
                               AnyTextPart(formats.Excluded({})),
                               formats.Signed(kHarmonyNext));
  const Json answer =
      SequencePart(Json::array({TextPart(formats.Signed(kHarmonyAnswer)),
                                AnyTextPart(formats.Excluded({"<|end|>", "<|start|>"}))}));
  return SequencePart(Json::array(
      {{{"type", "star"}, {"content", comment}}, OrPart(Json::array({answer, std::move(calls)}))}));
}

Json TriggeredTags(Json triggers, Json tags, bool one) {
  return {{"type", "triggered_tags"},
          {"triggers", std::move(triggers)},
          {"tags", std::move(tags)},
          {"at_least_one", false},
          {"stop_after_first", one}};
}

// Text with `calls`, which begin with `begin`. Where that has a special token, the token alone is
// the trigger, and the text has nothing else with which the parser begins to read a call.
Json TextWithTags(const MarkedFormats& formats, std::string_view begin, Json calls, bool one) {
  std::string trigger(begin.substr(0, begin.find('\n')));
  std::vector<std::string> others;
  if (trigger.find(kGrammarSign) != std::string::npos) {
    const CallSyntax& syntax = PlainSyntaxOf(formats.calls);
    for (const std::string& marker : syntax.Beginnings()) {
      std::string with_signs = formats.Signed(marker);
      const bool begins = with_signs != marker || syntax.IsOpening(marker);
      if (begins && !with_signs.starts_with(trigger)) others.push_back(std::move(with_signs));
    }
    for (const std::string& marker : others) {
      if (trigger.starts_with(marker)) trigger = marker;
    }
    std::erase(others, trigger);
  }
  Json part = TriggeredTags(Json::array({trigger}), std::move(calls), one);
  if (!others.empty()) part["excludes"] = others;
  return part;
}

// The calls alone, or text with calls in it. Only the whole header of a call counts: text may have
// the marker.
StatusOr<GrammarPart> FunctionaryText(GrammarPart calls,
                                      const std::vector<CallableTool>& tools,
                                      bool one) {
  const MarkedFormats formats = {.calls = ToolCallFormat::kFunctionaryMessages};
  CallForm in_text = *FormOf(formats);
  in_text.begin = in_text.separator;
  BATON_ASSIGN_OR_RETURN(Json tags, CallsOf(formats, in_text, tools));
  Json triggers = Json::array();
  for (const Json& tag : tags) triggers.push_back(tag["begin"]);
  Json text = TriggeredTags(std::move(triggers), std::move(tags), one);
  return OrPart(Json::array(
      {std::move(calls),
       SequencePart(Json::array({TextPart(std::string(kUser) + "\n"), std::move(text)}))}));
}

}  // namespace

StatusOr<GrammarPart> CallsPart(const MarkedFormats& formats,
                                const std::vector<CallableTool>& tools,
                                bool one) {
  BATON_RETURN_IF_ERROR(CheckNames(formats.calls, tools));
  if (PlainSyntaxOf(formats.calls).style == CallStyle::kPython) {
    BATON_ASSIGN_OR_RETURN(Json calls, PythonCalls(tools, one));
    const auto [begin, end] = PythonBrackets(formats);
    return SequencePart(Json::array({TextPart(begin), std::move(calls), TextPart(end)}));
  }
  const std::optional<CallForm> form = FormOf(formats);
  if (!form.has_value()) return NoForm();
  BATON_ASSIGN_OR_RETURN(Json calls, CallsOf(formats, *form, tools));
  const bool ends = one || formats.calls == ToolCallFormat::kHarmony;
  Json part = Several(OrPart(std::move(calls)), form->separator, ends);
  if (form->section_begin.empty()) return part;
  return SequencePart(
      Json::array({TextPart(form->section_begin), std::move(part), TextPart(form->section_end)}));
}

StatusOr<GrammarPart> TextWithCallsPart(const MarkedFormats& formats,
                                        const std::vector<CallableTool>& tools,
                                        bool one) {
  const CallSyntax& syntax = PlainSyntaxOf(formats.calls);
  if (formats.calls == ToolCallFormat::kHarmony || syntax.bare) {
    BATON_ASSIGN_OR_RETURN(GrammarPart calls, CallsPart(formats, tools, one));
    if (formats.calls == ToolCallFormat::kHarmony) return HarmonyText(formats, std::move(calls));
    if (formats.calls == ToolCallFormat::kFunctionaryMessages) {
      return FunctionaryText(std::move(calls), tools, one);
    }
    return OrPart(Json::array({std::move(calls), TextWithoutCall()}));
  }
  BATON_RETURN_IF_ERROR(CheckNames(formats.calls, tools));
  if (syntax.style == CallStyle::kPython) {
    BATON_ASSIGN_OR_RETURN(Json calls, PythonCalls(tools, one));
    const auto [begin, end] = PythonBrackets(formats);
    return TextWithTags(formats, begin, Json::array({TagPart(begin, std::move(calls), end)}), one);
  }
  const std::optional<CallForm> form = FormOf(formats);
  if (!form.has_value()) return NoForm();
  BATON_ASSIGN_OR_RETURN(Json tags, CallsOf(formats, *form, tools));
  std::string_view begin = form->begin;
  if (!form->section_begin.empty()) {
    Json calls = Several(OrPart(std::move(tags)), form->separator, one);
    tags = Json::array({TagPart(form->section_begin, std::move(calls), form->section_end)});
    begin = form->section_begin;
  }
  if (!form->trigger.empty()) begin = form->trigger;
  return TextWithTags(formats, begin, std::move(tags), one);
}

GrammarPart AfterReasoning(const MarkedFormats& formats, bool in_reasoning, GrammarPart part) {
  if (formats.reasoning == ReasoningFormat::kNone) return part;
  const Json text = AnyTextPart(formats.Excluded({}));
  if (formats.reasoning == ReasoningFormat::kHarmony) {
    Json reasoning = TagPart(formats.Signed(kHarmonyReasoning), text, formats.Signed(kHarmonyNext));
    return SequencePart(Json::array({OptionalPart(std::move(reasoning)), std::move(part)}));
  }
  const std::optional<ReasoningMarkers> markers = MarkersOf(formats.reasoning);
  Json reasoning = TagPart(
      in_reasoning ? "" : formats.Signed(markers->begin), text, formats.Signed(markers->end));
  Json space = {{"type", "regex"}, {"pattern", "\\n{0,2}"}};
  Json thought = SequencePart(Json::array({std::move(reasoning), std::move(space)}));
  if (!in_reasoning) thought = OptionalPart(std::move(thought));
  return SequencePart(Json::array({std::move(thought), std::move(part)}));
}

GrammarPart InAnswer(const MarkedFormats& formats, GrammarPart part) {
  if (formats.reasoning != ReasoningFormat::kHarmony) return part;
  return SequencePart(Json::array({TextPart(formats.Signed(kHarmonyAnswer)), std::move(part)}));
}

}  // namespace baton
