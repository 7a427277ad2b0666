#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "common/chat_format/chat_parser.h"
#include "common/text/utf8.h"

namespace baton {
namespace {

using Kind = ChatEvent::Kind;

constexpr int kCallFormats = static_cast<int>(kLastToolCallFormat) + 1;
constexpr int kReasoningFormats = static_cast<int>(kLastReasoningFormat) + 1;

void Add(const std::vector<ChatEvent>& from, std::vector<ChatEvent>& to) {
  for (const ChatEvent& event : from) {
    BATON_CHECK(IsValidUtf8(event.text), "an event ends within a character: {}", event.text);
    const bool is_text = event.kind == Kind::kContent || event.kind == Kind::kReasoning ||
                         event.kind == Kind::kArguments;
    if (is_text && !to.empty() && to.back().kind == event.kind) {
      to.back().text += event.text;
    } else {
      to.push_back(event);
    }
  }
}

// Calls begin and end in turn, and the arguments of each complete call are a JSON object.
void CheckOrder(const std::vector<ChatEvent>& events) {
  bool in_call = false;
  std::string arguments;
  for (const ChatEvent& event : events) {
    switch (event.kind) {
      case Kind::kCallBegin:
        BATON_CHECK(!in_call && !event.text.empty(), "a call begins in a call, or has no name");
        in_call = true;
        arguments.clear();
        break;
      case Kind::kArguments:
        BATON_CHECK(in_call, "arguments without a call");
        arguments += event.text;
        break;
      case Kind::kCallEnd:
        BATON_CHECK(in_call && IsJson(arguments), "not JSON: {}", arguments);
        BATON_CHECK(arguments.front() == '{', "not an object: {}", arguments);
        in_call = false;
        break;
      case Kind::kCallFailed:
        BATON_CHECK(in_call, "a call fails that has not begun");
        in_call = false;
        break;
      default:
        BATON_CHECK(!in_call, "content inside of a call");
    }
  }
  BATON_CHECK(!in_call, "a call without an end");
}

std::vector<std::string_view> MarkersOf(const ChatParserOptions& options) {
  std::vector<std::string_view> markers = TokensOf(options.calls);
  for (const std::string_view marker : TokensOf(options.reasoning)) markers.push_back(marker);
  return markers;
}

// The events of `text`. Ordinary text is divided into pieces of `step` bytes.
std::vector<ChatEvent> Parse(const ChatParserOptions& options,
                             const std::vector<std::string_view>& markers,
                             std::string_view text,
                             size_t step) {
  ChatParser parser(options);
  std::vector<ChatEvent> events;
  while (!text.empty()) {
    if (text.front() == '\1') {
      const std::string_view rest = text.substr(1);
      const auto marker = std::ranges::find_if(
          markers, [rest](std::string_view one) { return rest.starts_with(one); });
      if (marker != markers.end()) {
        Add(parser.AppendSpecial(*marker), events);
        text.remove_prefix(1 + marker->size());
        continue;
      }
    }
    const size_t end = std::min({text.find('\1', 1), step, text.size()});
    Add(parser.Append(text.substr(0, end)), events);
    text.remove_prefix(end);
  }
  Add(parser.Finish(), events);
  return events;
}

}  // namespace
}  // namespace baton

// The first byte chooses the format, the second where the text is divided, whether only offered
// tools are called, and whether the markers are special tokens. Then the character U+0001 in the
// text stands before each special token.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton;  // NOLINT(google-build-using-namespace)
  if (size < 2 || size > 8192) return 0;
  static const auto* tools = new auto(std::make_shared<const ToolSchemas>(
      nlohmann::ordered_json::parse(R"([{"name": "f", "parameters": {"properties": {
        "a": {"type": "string"}, "b": {"type": "integer"}}}}])")));
  ChatParserOptions options;
  options.calls = static_cast<ToolCallFormat>(data[0] % kCallFormats);
  options.reasoning = static_cast<ReasoningFormat>(data[0] / kCallFormats % kReasoningFormats);
  options.in_reasoning = data[0] >= 200;
  options.tools = *tools;
  options.offered_only = data[1] / 16 % 4 == 3;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  if (!IsValidUtf8(text)) return 0;
  const size_t step = 1 + data[1] % 16;
  const std::vector<std::string_view> markers = MarkersOf(options);
  if (data[1] >= 128) options.special = SpecialMarkers(markers);
  const std::vector<ChatEvent> whole = Parse(options, markers, text, text.size());
  CheckOrder(whole);
  const std::vector<ChatEvent> parts = Parse(options, markers, text, step);
  BATON_CHECK(parts == whole, "the events depend on how the text is divided");
  return 0;
}
