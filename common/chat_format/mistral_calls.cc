#include "common/chat_format/mistral_calls.h"

#include "common/chat_format/markers.h"

namespace baton {
namespace {

constexpr size_t kMaxNameBytes = 4096;
constexpr std::string_view kArguments = "[ARGS]";
constexpr std::string_view kCallId = "[CALL_ID]";

}  // namespace

CallReader::State MistralCalls::Read(std::string_view& text, ChatEvents& out) {
  while (!text.empty()) {
    if (phase_ == Phase::kCall) {
      const JsonCall::State state = call_->Read(text, out);
      if (state == JsonCall::State::kBad) return State::kBad;
      if (state == JsonCall::State::kMore) return State::kMore;
      phase_ = Phase::kAfterItem;
      any_ = true;
      return array_ ? State::kCallEnded : State::kDone;
    }
    if (phase_ == Phase::kArguments) {
      const size_t length = scanner_.Scan(text);
      out.Arguments(text.substr(0, length));
      text.remove_prefix(length);
      if (scanner_.state() == JsonScanner::State::kBad) return State::kBad;
      if (scanner_.state() == JsonScanner::State::kMore) return State::kMore;
      out.EndCall();
      return State::kDone;
    }
    const State state = TakeByte(text.front(), out);
    if (state == State::kBad) return state;
    // The first byte of an object is left to its reader.
    if (phase_ != Phase::kCall && phase_ != Phase::kArguments) text.remove_prefix(1);
    if (state != State::kMore) return state;
  }
  return State::kMore;
}

CallReader::State MistralCalls::TakeByte(char c, ChatEvents& out) {
  const bool space = IsSpace(c);
  switch (phase_) {
    case Phase::kStart:
    case Phase::kItem:
      if (space) return State::kMore;
      if (c == '{') {
        call_.emplace();
        phase_ = Phase::kCall;
        return State::kMore;
      }
      if (c == ']' && array_) return any_ ? State::kDone : State::kBad;
      if (array_) return State::kBad;
      if (c == '[') {
        array_ = true;
        phase_ = Phase::kItem;
        return State::kMore;
      }
      name_ = c;
      phase_ = Phase::kName;
      return State::kMore;
    case Phase::kAfterItem:
      if (c == ',') phase_ = Phase::kItem;
      if (space || c == ',') return State::kMore;
      return c == ']' ? State::kDone : State::kBad;
    case Phase::kTag:
      return TakeTag(c);
    default:
      break;
  }
  if (c == '{' && (phase_ == Phase::kName || tag_ == kArguments)) {
    while (!name_.empty() && IsSpace(name_.back())) name_.pop_back();
    out.BeginCall(name_, id_);
    phase_ = Phase::kArguments;
    return State::kMore;
  }
  if (c == '[') {
    tag_ = c;
    phase_ = Phase::kTag;
    return State::kMore;
  }
  std::string& word = phase_ == Phase::kId ? id_ : name_;
  if (space && word.empty()) return State::kMore;
  if (phase_ == Phase::kId && tag_ == kArguments) return space ? State::kMore : State::kBad;
  word += c;
  return word.size() > kMaxNameBytes || c == '\n' ? State::kBad : State::kMore;
}

CallReader::State MistralCalls::TakeTag(char c) {
  tag_ += c;
  if (!kArguments.starts_with(tag_) && !kCallId.starts_with(tag_)) return State::kBad;
  // Behind [ARGS] only white space and the arguments may follow.
  if (tag_ == kArguments || tag_ == kCallId) phase_ = Phase::kId;
  return State::kMore;
}

CallReader::State MistralCalls::Finish(ChatEvents&) {
  return phase_ == Phase::kAfterItem ? State::kDone : State::kBad;
}

}  // namespace baton
