#include "common/grammar/call_grammar.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "common/grammar/schema_references.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

// Bytes of the schemas of calls in Python's syntax.
constexpr size_t kMaxPythonBytes = size_t{1} << 20;

constexpr std::string_view kHarmonyReasoning = "<|channel|>analysis<|message|>";
constexpr std::string_view kHarmonyNext = "<|end|><|start|>assistant";

// How a format writes calls: section_begin (call (separator call)*) section_end. The name stands
// between `begin` and `name_end`.
struct CallSyntax {
  std::string section_begin = {};
  std::string begin = {};
  std::string name_end = {};
  std::string end = {};
  std::string section_end = {};
  std::string separator = {};
  std::string style = "json";
  bool numbered = false;  // a number of the call follows name_end, then `after_number`
  std::string after_number = {};
};

std::optional<CallSyntax> SyntaxOf(ToolCallFormat format) {
  switch (format) {
    case ToolCallFormat::kHermes:
      return CallSyntax{.begin = "<tool_call>\n{\"name\": \"",
                        .name_end = "\", \"arguments\": ",
                        .end = "}\n</tool_call>",
                        .separator = "\n"};
    case ToolCallFormat::kLlamaJson:
      return CallSyntax{.begin = "{\"name\": \"",
                        .name_end = "\", \"parameters\": ",
                        .end = "}",
                        .separator = "; "};
    case ToolCallFormat::kMistral:
      return CallSyntax{.section_begin = "[TOOL_CALLS][",
                        .begin = "{\"name\": \"",
                        .name_end = "\", \"arguments\": ",
                        .end = "}",
                        .section_end = "]",
                        .separator = ", "};
    case ToolCallFormat::kQwenCoder:
      return CallSyntax{.begin = "<tool_call>\n<function=",
                        .name_end = ">\n",
                        .end = "\n</function>\n</tool_call>",
                        .separator = "\n",
                        .style = "qwen_xml"};
    case ToolCallFormat::kDeepSeek:
      return CallSyntax{.section_begin = "<｜tool▁calls▁begin｜>",
                        .begin = "<｜tool▁call▁begin｜>",
                        .name_end = "<｜tool▁sep｜>",
                        .end = "<｜tool▁call▁end｜>",
                        .section_end = "<｜tool▁calls▁end｜>"};
    case ToolCallFormat::kDsml:
      return CallSyntax{.section_begin = "<｜DSML｜function_calls>\n",
                        .begin = "<｜DSML｜invoke name=\"",
                        .name_end = "\">\n",
                        .end = "</｜DSML｜invoke>\n",
                        .section_end = "</｜DSML｜function_calls>",
                        .style = "deepseek_xml"};
    case ToolCallFormat::kGlm:
      return CallSyntax{.begin = "<tool_call>",
                        .name_end = "\n",
                        .end = "</tool_call>",
                        .separator = "\n",
                        .style = "glm_xml"};
    case ToolCallFormat::kKimi:
      return CallSyntax{.section_begin = "<|tool_calls_section_begin|>",
                        .begin = "<|tool_call_begin|>functions.",
                        .name_end = ":",
                        .end = "<|tool_call_end|>",
                        .section_end = "<|tool_calls_section_end|>",
                        .numbered = true,
                        .after_number = "<|tool_call_argument_begin|>"};
    case ToolCallFormat::kHarmony:
      // The end of the call is an end token of the model.
      return CallSyntax{.begin = "<|channel|>commentary to=functions.",
                        .name_end = " <|constrain|>json<|message|>"};
    default:
      return std::nullopt;
  }
}

Json Text(std::string_view text) {
  return {{"type", "const_string"}, {"value", text}};
}

Json Sequence(Json elements) {
  return {{"type", "sequence"}, {"elements", std::move(elements)}};
}

Json Optional(Json content) {
  return {{"type", "optional"}, {"content", std::move(content)}};
}

Json Or(Json elements) {
  if (elements.size() == 1) return std::move(elements[0]);
  return {{"type", "or"}, {"elements", std::move(elements)}};
}

Json Arguments(Json schema, const std::string& style) {
  Json part = JsonSchemaOf(std::move(schema));
  if (style != "json") part["style"] = style;
  return part;
}

// The names of tools stand in the text of the format, so they must not end it.
Status CheckNames(const std::vector<CallableTool>& tools) {
  for (const CallableTool& tool : tools) {
    const auto plain = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '_' || c == '-' || c == '.' || c == ':' || c == '/';
    };
    if (!tool.name.empty() && std::ranges::all_of(tool.name, plain)) continue;
    return InvalidArgument(
        "the tool's name '{}' is not supported for constrained calls: it must consist of letters, "
        "digits and _ - . : /",
        tool.name.substr(0, 64));
  }
  return OkStatus();
}

Json TagOf(const CallSyntax& syntax, const CallableTool& tool) {
  Json content = Arguments(tool.parameters, syntax.style);
  if (syntax.numbered) {
    content = Sequence(Json::array({{{"type", "regex"}, {"pattern", "[0-9]{1,3}"}},
                                    Text(syntax.after_number),
                                    std::move(content)}));
  }
  return {{"type", "tag"},
          {"begin", syntax.begin + tool.name + syntax.name_end},
          {"content", std::move(content)},
          {"end", syntax.end}};
}

Json Calls(const CallSyntax& syntax, const std::vector<CallableTool>& tools, bool one) {
  Json tags = Json::array();
  for (const CallableTool& tool : tools) tags.push_back(TagOf(syntax, tool));
  return {{"type", "tags_with_separator"},
          {"tags", std::move(tags)},
          {"separator", syntax.separator},
          {"at_least_one", true},
          {"stop_after_first", one}};
}

// The schema of a tool's arguments, which may be a reference to a definition.
Json ArgumentsOf(const CallableTool& tool) {
  Json schema = tool.parameters;
  while (schema.contains("$ref")) schema = SchemaOfTarget(schema);
  return schema;
}

// The arguments of calls in Python's syntax, each a name and a schema.
struct PythonArguments {
  Json required = Json::array();
  Json others = Json::array();
};

// `written`: the bytes of schemas that are written for all tools so far. Where no argument is
// required, each is written once more for each argument with which a call may begin before it.
StatusOr<PythonArguments> ReadArguments(const CallableTool& tool, size_t& written) {
  const Json schema = ArgumentsOf(tool);
  std::set<std::string> required;
  for (const Json& name : schema.value("required", Json::array())) required.insert(name);
  const Json properties = schema.value("properties", Json::object());
  PythonArguments out;
  for (const auto& [name, property] : properties.items()) {
    Json& list = required.contains(name) ? out.required : out.others;
    list.push_back(Json::array({name, SchemaOfPart(schema, property)}));
    written += list.back().dump().size() * (required.empty() ? list.size() : 1);
    if (written <= kMaxPythonBytes) continue;
    return InvalidArgument(
        "the parameters of the tool '{}' are too large for the calls of this model: with all that "
        "may follow each other, they have more than {} bytes; use fewer optional parameters",
        tool.name.substr(0, 64),
        kMaxPythonBytes);
  }
  return out;
}

// f(a="x", b=1): the required arguments, then any of the others in order.
Json PythonCall(const CallableTool& tool, const PythonArguments& arguments) {
  const auto& [required, others] = arguments;
  const auto argument = [](const Json& one, bool first) {
    const std::string key = (first ? "" : ", ") + one[0].get<std::string>() + "=";
    return Sequence(Json::array({Text(key), JsonSchemaOf(one[1])}));
  };
  const auto following = [&argument, &optional = others](size_t from) {
    Json rest = Json::array();
    for (size_t i = from; i < optional.size(); ++i)
      rest.push_back(Optional(argument(optional[i], false)));
    return rest;
  };
  Json elements = Json::array({Text(tool.name + "(")});
  for (size_t i = 0; i < required.size(); ++i) elements.push_back(argument(required[i], i == 0));
  if (!required.empty()) {
    for (Json& one : following(0)) elements.push_back(std::move(one));
  } else if (!others.empty()) {
    Json starts = Json::array();
    for (size_t i = 0; i < others.size(); ++i) {
      Json start = Json::array({argument(others[i], true)});
      for (Json& one : following(i + 1)) start.push_back(std::move(one));
      starts.push_back(Sequence(std::move(start)));
    }
    elements.push_back(Optional(Or(std::move(starts))));
  }
  elements.push_back(Text(")"));
  return Sequence(std::move(elements));
}

StatusOr<GrammarPart> PythonCalls(const std::vector<CallableTool>& tools, bool one) {
  Json calls = Json::array();
  size_t written = 0;
  for (const CallableTool& tool : tools) {
    BATON_ASSIGN_OR_RETURN(const PythonArguments arguments, ReadArguments(tool, written));
    calls.push_back(PythonCall(tool, arguments));
  }
  const Json call = Or(std::move(calls));
  Json elements = Json::array({Text("["), call});
  if (!one) {
    elements.push_back({{"type", "star"}, {"content", Sequence(Json::array({Text(", "), call}))}});
  }
  elements.push_back(Text("]"));
  return Sequence(std::move(elements));
}

}  // namespace

StatusOr<GrammarPart> CallsPart(ToolCallFormat format,
                                const std::vector<CallableTool>& tools,
                                bool one) {
  BATON_RETURN_IF_ERROR(CheckNames(tools));
  if (format == ToolCallFormat::kPythonic) return PythonCalls(tools, one);
  const std::optional<CallSyntax> syntax = SyntaxOf(format);
  if (!syntax.has_value()) return InvalidArgument("the model has no format for calls of tools");
  Json calls = Calls(*syntax, tools, one || format == ToolCallFormat::kHarmony);
  if (syntax->section_begin.empty()) return calls;
  return Sequence(
      Json::array({Text(syntax->section_begin), std::move(calls), Text(syntax->section_end)}));
}

StatusOr<GrammarPart> TextWithCallsPart(ToolCallFormat format,
                                        const std::vector<CallableTool>& tools,
                                        bool one) {
  BATON_RETURN_IF_ERROR(CheckNames(tools));
  const std::optional<CallSyntax> syntax = SyntaxOf(format);
  const bool marked = syntax.has_value() && format != ToolCallFormat::kLlamaJson &&
                      format != ToolCallFormat::kHarmony;
  if (!marked) {
    return InvalidArgument(
        "strict tools are not supported with tool_choice auto in this model's format of calls");
  }
  Json tags = Json::array();
  if (!syntax->section_begin.empty()) {
    tags.push_back({{"type", "tag"},
                    {"begin", syntax->section_begin},
                    {"content", Calls(*syntax, tools, one)},
                    {"end", syntax->section_end}});
  } else {
    for (const CallableTool& tool : tools) tags.push_back(TagOf(*syntax, tool));
  }
  const std::string trigger = syntax->section_begin.empty() ? syntax->begin : syntax->section_begin;
  return Json{{"type", "triggered_tags"},
              {"triggers", Json::array({trigger.substr(0, trigger.find('\n'))})},
              {"tags", std::move(tags)},
              {"at_least_one", false},
              {"stop_after_first", one}};
}

GrammarPart AfterReasoning(ReasoningFormat format, bool in_reasoning, GrammarPart part) {
  if (format == ReasoningFormat::kNone) return part;
  if (format == ReasoningFormat::kHarmony) {
    Json reasoning = {{"type", "tag"},
                      {"begin", kHarmonyReasoning},
                      {"content", {{"type", "any_text"}}},
                      {"end", kHarmonyNext}};
    return Sequence(Json::array({Optional(std::move(reasoning)), std::move(part)}));
  }
  const std::optional<ReasoningMarkers> markers = MarkersOf(format);
  Json reasoning = {{"type", "tag"},
                    {"begin", in_reasoning ? std::string_view() : markers->begin},
                    {"content", {{"type", "any_text"}}},
                    {"end", markers->end}};
  Json space = {{"type", "regex"}, {"pattern", "\\n{0,2}"}};
  Json thought = Sequence(Json::array({std::move(reasoning), std::move(space)}));
  if (!in_reasoning) thought = Optional(std::move(thought));
  return Sequence(Json::array({std::move(thought), std::move(part)}));
}

}  // namespace baton
