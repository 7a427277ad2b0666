#include "common/chat_format/chat_parser.h"

namespace baton {

ChatParser::ChatParser(const ChatParserOptions& options) {
  const bool harmony_calls = options.calls == ToolCallFormat::kHarmony;
  const bool harmony_reasoning = options.reasoning == ReasoningFormat::kHarmony;
  if (harmony_calls || harmony_reasoning) {
    harmony_.emplace(HarmonyParser::Options{harmony_calls, harmony_reasoning});
    return;
  }
  if (const auto markers = MarkersOf(options.reasoning); markers.has_value()) {
    reasoning_.emplace(*markers, options.in_reasoning);
  }
  if (options.calls != ToolCallFormat::kNone) calls_.emplace(options.calls, options.tools);
}

std::vector<ChatEvent> ChatParser::Append(std::string_view text) {
  if (harmony_.has_value()) {
    harmony_->Append(text, events_);
  } else if (reasoning_.has_value()) {
    AddRest(reasoning_->Append(text, events_));
  } else {
    AddRest(text);
  }
  return events_.Take();
}

std::vector<ChatEvent> ChatParser::Finish() {
  if (harmony_.has_value()) harmony_->Finish(events_);
  if (reasoning_.has_value()) AddRest(reasoning_->Finish(events_));
  if (calls_.has_value()) calls_->Finish(events_);
  return events_.Take();
}

bool ChatParser::in_reasoning() const {
  if (harmony_.has_value()) return harmony_->in_reasoning();
  return reasoning_.has_value() && reasoning_->in_reasoning();
}

void ChatParser::AddRest(std::string_view text) {
  if (calls_.has_value()) {
    calls_->Append(text, events_);
  } else {
    events_.Content(text);
  }
}

}  // namespace baton
