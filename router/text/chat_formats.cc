#include "router/text/chat_formats.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/json.h"
#include "common/base/shortened.h"
#include "common/chat_format/chat_parser.h"
#include "common/chat_format/markers.h"
#include "router/generation.h"
#include "router/text/template_context.h"

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kTool = "probe_tool";
// One tool. Some templates read the description of each parameter.
constexpr std::string_view kTools = R"([{"type": "function", "function": {
    "name": "probe_tool", "description": "Looks something up.", "parameters": {"type": "object",
    "properties": {"text": {"type": "string", "description": "A text."},
                   "count": {"type": "integer", "description": "A number."},
                   "flag": {"type": "boolean", "description": "A choice."},
                   "list": {"type": "array", "items": {"type": "integer"},
                            "description": "Numbers."}},
    "required": ["text"]}}}])";
constexpr std::string_view kAnswer = "Mere words";

Json ArgumentsOf(int call) {
  return {{"text", "two words"}, {"count", 70 + call}, {"flag", true}, {"list", {1, 2}}};
}

// A question and the answer to it.
ChatInput ChatWith(ChatTurn answer) {
  ChatInput chat;
  chat.turns = {{"user", "A question", ""}, std::move(answer)};
  chat.tools_json = kTools;
  chat.arguments_json = R"({"add_generation_prompt": false})";
  return chat;
}

ChatInput ChatWithCalls(int calls) {
  Json list = Json::array();
  for (int i = 0; i < calls; ++i) {
    list.push_back({{"id", fmt::format("call0000{}", i)},
                    {"type", "function"},
                    {"function", {{"name", kTool}, {"arguments", ArgumentsOf(i)}}}});
  }
  return ChatWith({"assistant", "", Json{{"tool_calls", std::move(list)}}.dump()});
}

// Whether `text` ends inside of a tag: behind a '<' without its '>'.
bool EndsInTag(std::string_view text) {
  const size_t open = text.rfind('<');
  return open != std::string_view::npos && text.find('>', open) == std::string_view::npos;
}

// What stands in `with_calls` in place of the answer in `plain`, with whole tags.
std::string Difference(std::string_view with_calls, std::string_view plain) {
  const auto differs = std::ranges::mismatch(with_calls, plain).in1;
  auto begin = static_cast<size_t>(differs - with_calls.begin());
  if (EndsInTag(with_calls.substr(0, begin))) begin = with_calls.rfind('<', begin);
  const std::string_view rest = with_calls.substr(begin);
  const auto same =
      std::mismatch(rest.rbegin(), rest.rend(), plain.rbegin(), plain.rend()).first - rest.rbegin();
  size_t end = rest.size() - static_cast<size_t>(same);
  if (EndsInTag(rest.substr(0, end))) end = std::min(rest.find('>', end), rest.size() - 1) + 1;
  return std::string(rest.substr(0, end));
}

// Whether nothing but control tokens, as at the end of a message, and white space is in `text`.
bool OnlyControlTokens(std::string_view text) {
  for (text = Trimmed(text); !text.empty(); text = Trimmed(text)) {
    const size_t end = text.find('>');
    const bool token = text.starts_with('<') && !text.starts_with("</");
    if (!token || end == std::string_view::npos) return false;
    text.remove_prefix(end + 1);
  }
  return true;
}

// Whether the parser of the formats finds in `text` just the calls that the template printed.
bool GivesBack(ToolCallFormat format, ReasoningFormat reasoning, std::string_view text, int calls) {
  ChatParserOptions options;
  options.calls = format;
  options.reasoning = reasoning;
  options.tools = std::make_shared<const ToolSchemas>(*ParseOrderedJson("tools", kTools));
  ChatParser parser(options);
  std::vector<ChatEvent> events = parser.Append(text);
  std::ranges::move(parser.Finish(), std::back_inserter(events));
  std::string content;
  std::string arguments;
  int ended = 0;
  for (const ChatEvent& event : events) {
    switch (event.kind) {
      case ChatEvent::Kind::kContent:
        content += event.text;
        break;
      case ChatEvent::Kind::kCallBegin:
        if (event.text != kTool) return false;
        arguments.clear();
        break;
      case ChatEvent::Kind::kArguments:
        arguments += event.text;
        break;
      case ChatEvent::Kind::kCallEnd:
        // Without the order of the members, which some templates sort.
        if (const auto read = ParseJson("arguments", arguments);
            !read.ok() || *read != nlohmann::json(ArgumentsOf(ended))) {
          return false;
        }
        ++ended;
        break;
      case ChatEvent::Kind::kCallFailed:
        return false;
      case ChatEvent::Kind::kReasoning:
        break;
    }
  }
  return ended == calls && OnlyControlTokens(content);
}

class Prober {
 public:
  Prober(const ChatTemplate& chat_template, const Tokenizer& tokenizer)
      : template_(chat_template), tokenizer_(tokenizer) {}

  // What the template prints for a message with this number of calls; nullopt if it prints none.
  std::optional<std::string> Calls(int calls) const {
    const std::optional<std::string> with_calls = Render(ChatWithCalls(calls));
    const std::optional<std::string> plain =
        Render(ChatWith({"assistant", std::string(kAnswer), ""}));
    if (!with_calls.has_value() || !plain.has_value()) return std::nullopt;
    std::string text = Difference(*with_calls, *plain);
    if (text.find(kTool) == std::string::npos) return std::nullopt;
    return text;
  }

 private:
  std::optional<std::string> Render(const ChatInput& chat) const {
    StatusOr<Json> context = TemplateContext(
        {.chat = chat, .names = {}, .tokenizer = tokenizer_, .source = template_.source()});
    if (!context.ok()) return std::nullopt;
    const auto segments = RenderChat(template_, *context, {});
    if (!segments.ok()) return std::nullopt;
    std::string prompt;
    for (const TextSegment& segment : *segments) prompt += segment.text;
    return prompt;
  }

  const ChatTemplate& template_;
  const Tokenizer& tokenizer_;
};

// Templates of Llama 4 tell the model to write Python's calls, but print earlier calls as JSON.
bool AsksForPython(std::string_view source) {
  return source.find("[func_name1(") != std::string_view::npos;
}

void FindCalls(const Prober& prober, std::string_view source, ChatFormats& formats) {
  if (AsksForPython(source)) {
    formats.calls = ToolCallFormat::kPythonic;
    return;
  }
  // Some templates refuse two calls, or print only the first.
  std::optional<std::string> printed;
  for (const int calls : {2, 1}) {
    const std::optional<std::string> text = prober.Calls(calls);
    if (!text.has_value()) continue;
    printed = text;
    // Later formats are special cases of earlier ones, where one text is of two formats.
    for (int i = static_cast<int>(kLastToolCallFormat); i > 0; --i) {
      const auto format = static_cast<ToolCallFormat>(i);
      if (!GivesBack(format, formats.reasoning, *text, calls)) continue;
      formats.calls = format;
      return;
    }
  }
  if (!printed.has_value()) {
    formats.calls = DescribedCallFormat(source);
  } else {
    formats.unknown_call = Shortened(std::string(Trimmed(*printed)), 120);
  }
}

}  // namespace

std::string ChatFormats::WhyNoCalls() const {
  if (unknown_call.empty()) return "its chat template has no known format for calls";
  return fmt::format("its chat template prints calls in a form that is not known: {}",
                     unknown_call);
}

ChatFormats FindChatFormats(const ChatTemplate& chat_template, const Tokenizer& tokenizer) {
  const std::string& source = chat_template.source();
  ChatFormats formats;
  formats.reasoning = ReasoningFormatOf(source);
  formats.may_begin_reasoning = MayBeginReasoning(formats.reasoning, source);
  FindCalls(Prober(chat_template, tokenizer), source, formats);
  return formats;
}

}  // namespace baton::router
