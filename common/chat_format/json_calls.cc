#include "common/chat_format/json_calls.h"

namespace baton {

CallReader::State HermesCalls::Read(std::string_view& text, ChatEvents& out) {
  while (!text.empty()) {
    if (phase_ == Phase::kBefore && text.front() == '{') phase_ = Phase::kCall;
    if (phase_ == Phase::kCall) {
      const JsonCall::State state = call_.Read(text, out);
      if (state == JsonCall::State::kBad) return State::kBad;
      if (state == JsonCall::State::kMore) return State::kMore;
      phase_ = Phase::kAfter;
      return State::kCallEnded;
    }
    const char c = text.front();
    if (in_end_ || !IsSpace(c)) {
      if (phase_ == Phase::kBefore || !end_.Take(c)) return State::kBad;
      in_end_ = true;
    }
    text.remove_prefix(1);
    if (end_.done()) return State::kDone;
  }
  return State::kMore;
}

CallReader::State HermesCalls::Finish(ChatEvents&) {
  return phase_ == Phase::kAfter ? State::kDone : State::kBad;
}

CallReader::State LlamaCalls::Read(std::string_view& text, ChatEvents& out) {
  while (!text.empty()) {
    if (!call_.has_value() && text.front() == '{') call_.emplace(known_);
    if (call_.has_value()) {
      const JsonCall::State state = call_->Read(text, out);
      if (state == JsonCall::State::kBad) return State::kBad;
      if (state == JsonCall::State::kMore) return State::kMore;
      call_.reset();
      any_ = true;
      return State::kCallEnded;
    }
    const bool separates = IsSpace(text.front()) || (any_ && text.front() == ';');
    if (!separates) return State::kBad;
    text.remove_prefix(1);
  }
  return State::kMore;
}

CallReader::State LlamaCalls::Finish(ChatEvents&) {
  return any_ && !call_.has_value() ? State::kDone : State::kBad;
}

}  // namespace baton
