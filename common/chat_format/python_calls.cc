#include "common/chat_format/python_calls.h"

#include "common/chat_format/markers.h"

namespace baton {
namespace {

// A byte of a name; tools may have dots and dashes in their names, too.
bool IsName(char c, bool first) {
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  return letter || (!first && ((c >= '0' && c <= '9') || c == '.' || c == '-'));
}

}  // namespace

CallReader::State PythonCalls::Read(std::string_view& text, ChatEvents& out) {
  while (!text.empty()) {
    if (bad_.has_value()) return SkipBrokenCall(bad_, text);
    if (phase_ == Phase::kValue) {
      std::string json;
      const PythonValue::State state = value_.Read(text, json);
      out.Arguments(json);
      if (state == PythonValue::State::kBad) return EndBadCall();
      if (state == PythonValue::State::kMore) return State::kMore;
      phase_ = Phase::kAfterValue;
      continue;
    }
    const State state = TakeByte(text.front(), out);
    if (state == State::kBad) return EndBadCall();
    text.remove_prefix(1);
    if (state != State::kMore) return state;
  }
  return State::kMore;
}

CallReader::State PythonCalls::TakeByte(char c, ChatEvents& out) {
  const bool space = IsSpace(c);
  switch (phase_) {
    case Phase::kBegin:
      if (space) return State::kMore;
      phase_ = Phase::kBeforeName;
      return c == '[' ? State::kMore : State::kBad;
    case Phase::kBeforeName:
    case Phase::kKeyOrEnd:
      if (space) return State::kMore;
      if (c == ')' && phase_ == Phase::kKeyOrEnd) return EndCall(out);
      if (c == ']' && phase_ == Phase::kBeforeName) return EndList();
      word_ = c;
      phase_ = phase_ == Phase::kKeyOrEnd ? Phase::kKey : Phase::kName;
      return IsName(c, true) ? State::kMore : State::kBad;
    case Phase::kName:
      if (c == '(' && BeginCall(out)) return State::kMore;
      if (c == '(') return any_ ? SkipCall(1, '\0') : State::kBad;
      word_ += c;
      return IsName(c, false) && word_.size() <= kMaxCallNameBytes ? State::kMore : State::kBad;
    case Phase::kKey:
      if (c == '=') BeginValue(out);
      if (c == '=' || space) return State::kMore;
      word_ += c;
      return IsName(c, false) && word_.size() <= kMaxCallNameBytes ? State::kMore : State::kBad;
    case Phase::kAfterValue:
      if (c == ')') return EndCall(out);
      if (c == ',') phase_ = Phase::kKeyOrEnd;
      return space || c == ',' ? State::kMore : State::kBad;
    default:
      if (c == ']') return EndList();
      if (c == ',') phase_ = Phase::kBeforeName;
      return space || c == ',' ? State::kMore : State::kBad;
  }
}

bool PythonCalls::BeginCall(ChatEvents& out) {
  if (!names_.Allow(word_)) return false;
  out.BeginCall(word_);
  out.Arguments("{");
  first_ = true;
  phase_ = Phase::kKeyOrEnd;
  return true;
}

void PythonCalls::BeginValue(ChatEvents& out) {
  out.Arguments(first_ ? "\"" : ", \"");
  out.Arguments(word_);
  out.Arguments("\": ");
  first_ = false;
  value_ = {};
  phase_ = Phase::kValue;
}

CallReader::State PythonCalls::EndCall(ChatEvents& out) {
  out.Arguments("}");
  out.EndCall();
  any_ = true;
  after_bad_ = false;
  phase_ = Phase::kAfterCall;
  return State::kCallEnded;
}

CallReader::State PythonCalls::EndBadCall() {
  switch (phase_) {
    case Phase::kValue:
      return SkipCall(1 + value_.depth(), value_.quote());
    case Phase::kKeyOrEnd:
    case Phase::kKey:
    case Phase::kAfterValue:
      return SkipCall(1, '\0');
    default:
      return State::kBad;
  }
}

CallReader::State PythonCalls::SkipCall(size_t depth, char quote) {
  bad_.emplace(depth, quote, "\"'");
  after_bad_ = true;
  phase_ = Phase::kAfterCall;
  return State::kNotCall;
}

// Behind a bad call, the end of the list is text, too.
CallReader::State PythonCalls::EndList() const {
  return any_ && !after_bad_ ? State::kDone : State::kBad;
}

CallReader::State PythonCalls::Finish(ChatEvents&) {
  const bool open = bad_.has_value() || after_bad_ || phase_ != Phase::kAfterCall;
  return open ? State::kBad : State::kDone;
}

}  // namespace baton
