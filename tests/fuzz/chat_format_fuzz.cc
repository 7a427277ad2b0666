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

void Add(const std::vector<ChatEvent>& from, std::vector<ChatEvent>& to) {
  for (const ChatEvent& event : from) {
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

}  // namespace
}  // namespace baton

// The first byte chooses the format, the second where the text is divided.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton;  // NOLINT(google-build-using-namespace)
  if (size < 2 || size > 8192) return 0;
  static const auto* tools = new auto(std::make_shared<const ToolSchemas>(
      nlohmann::ordered_json::parse(R"([{"name": "f", "parameters": {"properties": {
        "a": {"type": "string"}, "b": {"type": "integer"}}}}])")));
  ChatParserOptions options;
  options.calls = static_cast<ToolCallFormat>(data[0] % 11);
  options.reasoning = static_cast<ReasoningFormat>(data[0] / 11 % 5);
  options.in_reasoning = data[0] >= 200;
  options.tools = *tools;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  if (!IsValidUtf8(text)) return 0;
  const size_t step = 1 + data[1] % 16;
  std::vector<ChatEvent> whole;
  ChatParser one(options);
  Add(one.Append(text), whole);
  Add(one.Finish(), whole);
  CheckOrder(whole);
  std::vector<ChatEvent> parts;
  ChatParser other(options);
  for (size_t at = 0; at < text.size(); at += step) Add(other.Append(text.substr(at, step)), parts);
  Add(other.Finish(), parts);
  BATON_CHECK(parts == whole, "the events depend on how the text is divided");
  return 0;
}
