#include "common/chat_format/chat_parser.h"

#include <utility>

namespace baton {
namespace {

// How many bytes at the end of `text` are the beginning of a character that goes on.
size_t CutCharacter(std::string_view text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;
    const size_t length = byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : byte < 0xF8 ? 4 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

}  // namespace

ChatParser::ChatParser(const ChatParserOptions& options) : special_(options.special) {
  const bool harmony_calls = options.calls == ToolCallFormat::kHarmony;
  const bool harmony_reasoning = options.reasoning == ReasoningFormat::kHarmony;
  if (harmony_calls || harmony_reasoning) {
    const HarmonyParser::Options harmony = {
        harmony_calls, harmony_reasoning, options.tools, options.offered_only};
    harmony_.emplace(harmony, options.special);
    return;
  }
  const CallOptions calls = {options.calls, options.special, options.tools, options.offered_only};
  if (const auto markers = MarkersOf(options.reasoning); markers.has_value()) {
    reasoning_.emplace(*markers, options.in_reasoning, calls);
  }
  std::vector<std::string> content_markers;
  for (const std::string_view marker : ContentMarkersOf(options.reasoning)) {
    content_markers.push_back(options.special.Signed(marker));
  }
  if (!content_markers.empty()) content_markers_.emplace(std::move(content_markers));
  if (options.calls != ToolCallFormat::kNone) calls_.emplace(calls);
}

std::vector<ChatEvent> ChatParser::Append(std::string_view text) {
  const size_t cut = CutCharacter(text);
  if (held_.empty() && cut == 0) {
    AddWhole(text);
    return events_.Take();
  }
  held_ += text;
  const size_t whole = held_.size() - CutCharacter(held_);
  AddWhole(std::string_view(held_).substr(0, whole));
  held_.erase(0, whole);
  return events_.Take();
}

std::vector<ChatEvent> ChatParser::AppendSpecial(std::string_view text) {
  AddWhole(std::exchange(held_, {}));
  AddWhole(special_.Signed(text));
  return events_.Take();
}

std::vector<ChatEvent> ChatParser::Finish() {
  AddWhole(std::exchange(held_, {}));
  if (harmony_.has_value()) harmony_->Finish(events_);
  if (reasoning_.has_value()) AddRest(reasoning_->Finish(events_));
  if (content_markers_.has_value()) AddContent(content_markers_->Finish());
  if (calls_.has_value()) calls_->Finish(events_);
  return events_.Take();
}

bool ChatParser::in_reasoning() const {
  if (harmony_.has_value()) return harmony_->in_reasoning();
  return reasoning_.has_value() && reasoning_->in_reasoning();
}

void ChatParser::AddWhole(std::string_view text) {
  if (harmony_.has_value()) {
    harmony_->Append(text, events_);
  } else if (reasoning_.has_value() && !reasoning_->done()) {
    AddRest(reasoning_->Append(text, events_));
  } else {
    AddRest(text);
  }
}

void ChatParser::AddRest(std::string_view text) {
  content_markers_.has_value() ? AddContent(content_markers_->Append(text)) : AddContent(text);
}

void ChatParser::AddContent(std::string_view text) {
  if (calls_.has_value()) {
    calls_->Append(text, events_);
  } else {
    events_.Content(text);
  }
}

}  // namespace baton
