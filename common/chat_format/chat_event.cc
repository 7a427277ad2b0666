#include "common/chat_format/chat_event.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/chat_format/markers.h"

namespace baton {

void ChatEvents::BeginCall(std::string_view name, std::string_view id) {
  events_.push_back({ChatEvent::Kind::kCallBegin, std::string(name), std::string(id)});
  in_call_ = true;
}

void ChatEvents::EndCall() {
  events_.push_back({ChatEvent::Kind::kCallEnd, {}, {}});
  in_call_ = false;
}

void ChatEvents::FailCall(std::string_view raw) {
  if (!in_call_) return Content(raw);
  events_.push_back({ChatEvent::Kind::kCallFailed, WithoutSigns(raw), {}});
  in_call_ = false;
}

void ChatEvents::Add(std::vector<ChatEvent> events) {
  std::ranges::move(events, std::back_inserter(events_));
}

std::vector<ChatEvent> ChatEvents::Take() {
  return std::exchange(events_, {});
}

void ChatEvents::Text(ChatEvent::Kind kind, std::string_view text) {
  if (text.empty()) return;
  if (events_.empty() || events_.back().kind != kind) events_.push_back({kind, {}, {}});
  std::string& to = events_.back().text;
  if (text.find(kSpecialSign) == std::string_view::npos) {
    to += text;
  } else {
    to += WithoutSigns(text);
  }
}

}  // namespace baton
