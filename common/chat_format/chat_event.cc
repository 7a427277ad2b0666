#include "common/chat_format/chat_event.h"

#include <utility>

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
  events_.push_back({ChatEvent::Kind::kCallFailed, std::string(raw), {}});
  in_call_ = false;
}

std::vector<ChatEvent> ChatEvents::Take() {
  return std::exchange(events_, {});
}

void ChatEvents::Text(ChatEvent::Kind kind, std::string_view text) {
  if (text.empty()) return;
  if (events_.empty() || events_.back().kind != kind) events_.push_back({kind, {}, {}});
  events_.back().text += text;
}

}  // namespace baton
