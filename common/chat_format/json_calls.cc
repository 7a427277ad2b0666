#include "common/chat_format/json_calls.h"

#include "common/chat_format/markers.h"

namespace baton {

CallReader::State HermesCalls::Read(std::string_view& text, ChatEvents& out) {
  if (!begun_) text.remove_prefix(SpaceAtFront(text));
  if (text.empty()) return State::kMore;
  if (!begun_ && text.front() != '{') return State::kBad;
  begun_ = true;
  switch (call_.Read(text, out)) {
    case JsonCall::State::kMore:
      return State::kMore;
    case JsonCall::State::kDone:
      return State::kDone;
    default:
      break;
  }
  const Begins end = BeginsWith(text, end_);
  if (end == Begins::kMaybe && !text.empty()) return State::kMore;
  return end == Begins::kYes && call_.EndWithoutBrace(out) ? State::kDone : State::kBad;
}

CallReader::State JsonCallList::Read(std::string_view& text, ChatEvents& out) {
  while (!text.empty()) {
    if (bad_.has_value()) return SkipBrokenCall(bad_, text);
    if (!call_.has_value() && text.front() == '{') call_.emplace(names_, options_.bare);
    if (call_.has_value()) return ReadCall(text, out);
    const Begins end = AtEnd(text);
    if (end != Begins::kNo) return end == Begins::kYes ? State::kDone : State::kMore;
    const State state = TakeBetween(text.front());
    if (state == State::kBad) return state;
    text.remove_prefix(1);
    if (state != State::kMore) return state;
  }
  return State::kMore;
}

CallReader::State JsonCallList::ReadCall(std::string_view& text, ChatEvents& out) {
  const JsonCall::State state = call_->Read(text, out);
  if (state == JsonCall::State::kMore) return State::kMore;
  after_bad_ = state == JsonCall::State::kBad;
  if (after_bad_ && options_.bare && !any_) return State::kBad;
  if (after_bad_) bad_ = call_->Skipper();
  call_.reset();
  any_ |= !after_bad_;
  return after_bad_ ? State::kNotCall : State::kCallEnded;
}

Begins JsonCallList::AtEnd(std::string_view text) const {
  const bool may_end = any_ && !after_bad_ && !options_.end.empty();
  return may_end ? BeginsWith(text, options_.end) : Begins::kNo;
}

CallReader::State JsonCallList::TakeBetween(char c) const {
  if (IsSpace(c)) return State::kMore;
  const bool behind_call = any_ || after_bad_;
  if (options_.in_array && c == ']') return any_ && !after_bad_ ? State::kDone : State::kBad;
  return behind_call && (c == ',' || (c == ';' && !options_.in_array)) ? State::kMore : State::kBad;
}

CallReader::State JsonCallList::Finish(ChatEvents&) {
  const bool open = call_.has_value() || bad_.has_value() || after_bad_;
  return any_ && !open ? State::kDone : State::kBad;
}

CallReader::State JsonListCalls::Read(std::string_view& text, ChatEvents& out) {
  if (list_.has_value()) return list_->Read(text, out);
  text.remove_prefix(SpaceAtFront(text));
  if (text.empty()) return State::kMore;
  const bool in_array = text.front() == '[';
  if (!in_array && text.front() != '{') return State::kBad;
  if (in_array) text.remove_prefix(1);
  list_.emplace(names_, JsonCallList::Options{.in_array = in_array, .end = end_});
  return list_->Read(text, out);
}

CallReader::State JsonListCalls::Finish(ChatEvents& out) {
  return list_.has_value() ? list_->Finish(out) : State::kBad;
}

}  // namespace baton
