#include "router/text/output_grammar.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/json.h"
#include "common/grammar/call_grammar.h"
#include "common/grammar/format_parts.h"
#include "common/grammar/grammar_spec.h"
#include "common/grammar/schema_check.h"
#include "common/grammar/tagged_calls.h"
#include "common/grammar/xgrammar/grammar_compiler.h"
#include "router/request_error.h"
#include "router/text/chat_tools.h"

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;
using Kind = GrammarInput::Kind;
using Choice = ChatOutput::Choice;

StatusOr<GrammarPart> PartOf(const GrammarInput& in) {
  switch (in.kind) {
    case Kind::kJsonSchema: {
      BATON_ASSIGN_OR_RETURN(const Json schema, ParseOrderedJson(in.member, in.text));
      return JsonSchemaPart(schema);
    }
    case Kind::kRegex:
      return RegexPart(in.text);
    case Kind::kChoice:
      return ChoicePart(in.choices);
    case Kind::kEbnf:
      return EbnfPart(in.text);
    default:
      return JsonObjectPart();
  }
}

Json AnyObject() {
  return {{"type", "object"}, {"additionalProperties", true}};
}

struct Tools {
  std::vector<CallableTool> callable;  // those that tool_choice allows
  bool strict = false;                 // one of these is strict
};

StatusOr<Tools> ReadTools(const ChatInput& chat, const ChatOutput& output, SchemaUse use) {
  BATON_ASSIGN_OR_RETURN(const Json tools, ParseOrderedJson("tools", chat.tools_json));
  Tools out;
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string name = fmt::format("tools[{}]", i);
    const std::string tool = ToolName(tools[i]);
    if (tool.empty()) return InvalidMember(name, "{} has no function with a name", name);
    if (!output.MayCall(tool)) continue;
    const Json& function = tools[i]["function"];
    const bool strict = function.value("strict", Json()) == true;
    out.strict |= strict;
    Json schema = function.value("parameters", Json());
    if (schema.is_null()) schema = {{"type", "object"}, {"properties", Json::object()}};
    const bool constrained = strict || output.choice != Choice::kAuto;
    StatusOr<Json> checked =
        constrained ? CheckedSchema(schema, GrammarLimits(), use) : StatusOr<Json>(AnyObject());
    if (!checked.ok()) return AtMember(checked.status(), name + ".parameters");
    if (*checked == true || checked->empty()) checked = AnyObject();
    out.callable.push_back({tool, *std::move(checked), std::move(schema)});
  }
  return out;
}

// `answer`, which an output without calls matches, with the calls that the request allows or
// demands: an output under a grammar either is the answer or calls. Nothing when answer and calls
// are free. Forced calls leave no room for an answer.
StatusOr<std::optional<GrammarPart>> WithCalls(const GenerationRequest& request,
                                               const MarkedFormats& formats,
                                               std::optional<GrammarPart> answer) {
  const auto* chat = std::get_if<ChatInput>(&request.input);
  if (chat == nullptr || !request.chat_output.has_value() || !request.chat_output->calls) {
    return answer;
  }
  const ChatOutput& output = *request.chat_output;
  const bool forced = output.choice != Choice::kAuto;
  if (!forced && !answer && chat->tools_json.find("\"strict\"") == std::string::npos) return answer;
  const SchemaUse use = EndsAtMarkers(formats.calls) ? SchemaUse::kCall : SchemaUse::kJson;
  BATON_ASSIGN_OR_RETURN(const Tools tools, ReadTools(*chat, output, use));
  if (!forced && !answer && !tools.strict) return answer;
  const bool one = output.one_call || output.choice == Choice::kNamed;
  auto part = forced || answer ? CallsPart(formats, tools.callable, one)
                               : TextWithCallsPart(formats, tools.callable, one);
  if (!part.ok()) return AtMember(part.status(), forced ? "tool_choice" : "tools");
  if (forced || !answer) return std::optional<GrammarPart>(*std::move(part));
  return std::optional<GrammarPart>(OrPart(Json::array({*std::move(answer), *std::move(part)})));
}

Status CheckCompatible(const GenerationRequest& request, const std::string& member) {
  if (request.ignore_eos) {
    return InvalidMember("ignore_eos",
                         "ignore_eos is not supported with {}: the output ends where its grammar "
                         "ends",
                         member);
  }
  if (request.min_tokens > 0) {
    return InvalidMember("min_tokens",
                         "min_tokens is not supported with {}: its grammar decides the length",
                         member);
  }
  return OkStatus();
}

// `part` behind the reasoning that the model may write where `prompt` ends: the rest of what the
// prompt has opened, or all of it. A prompt that ends with the closing marker switches it off.
GrammarPart AfterReasoningOf(const ModelText& text,
                             const PromptInput& input,
                             std::span<const TokenId> prompt,
                             GrammarPart part) {
  using Reasoning = ModelText::Reasoning;
  const Reasoning reasoning = text.ReasoningAfter(std::get_if<ChatInput>(&input), prompt);
  const bool may_begin = reasoning == Reasoning::kNotBegun && text.formats().may_begin_reasoning;
  if (reasoning != Reasoning::kInside && !may_begin) return part;
  return AfterReasoning(text.marked_formats(), reasoning == Reasoning::kInside, std::move(part));
}

}  // namespace

StatusOr<std::string> OutputGrammar(const GenerationRequest& request,
                                    const ModelText& text,
                                    std::span<const TokenId> prompt) {
  const GrammarInput& in = request.output_grammar;
  const auto* chat = std::get_if<ChatInput>(&request.input);
  const bool is_chat = chat != nullptr && request.chat_output.has_value();
  std::optional<GrammarPart> answer;
  if (in.kind != Kind::kNone) {
    StatusOr<GrammarPart> made = PartOf(in);
    if (!made.ok()) return AtMember(made.status(), in.member);
    answer = is_chat ? InAnswer(text.marked_formats(), *std::move(made)) : *std::move(made);
  }
  const std::string member = answer.has_value() ? in.member : "tool_choice";
  BATON_ASSIGN_OR_RETURN(std::optional<GrammarPart> part,
                         WithCalls(request, text.marked_formats(), std::move(answer)));
  if (!part.has_value()) return std::string();
  BATON_RETURN_IF_ERROR(CheckCompatible(request, member));
  if (is_chat) part = AfterReasoningOf(text, request.input, prompt, *std::move(part));
  std::string spec = GrammarSpec(*std::move(part));
  BATON_RETURN_IF_ERROR(AtMember(CheckGrammar(spec), member));
  return spec;
}

}  // namespace baton::router
