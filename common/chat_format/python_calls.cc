#include "common/chat_format/python_calls.h"

#include "common/chat_format/markers.h"

namespace baton {
namespace {

constexpr size_t kMaxNameBytes = 4096;

// A byte of a name; tools may have dots and dashes in their names, too.
bool IsName(char c, bool first) {
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  return letter || (!first && ((c >= '0' && c <= '9') || c == '.' || c == '-'));
}

}  // namespace

CallReader::State PythonCalls::Read(std::string_view& text, ChatEvents& out) {
  while (!text.empty()) {
    if (phase_ == Phase::kValue) {
      std::string json;
      const PythonValue::State state = value_.Read(text, json);
      out.Arguments(json);
      if (state == PythonValue::State::kBad) return State::kBad;
      if (state == PythonValue::State::kMore) return State::kMore;
      phase_ = Phase::kAfterValue;
      continue;
    }
    const State state = TakeByte(text.front(), out);
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
      if (c == ']' && any_ && phase_ == Phase::kBeforeName) return State::kDone;
      word_ = c;
      phase_ = phase_ == Phase::kKeyOrEnd ? Phase::kKey : Phase::kName;
      return IsName(c, true) ? State::kMore : State::kBad;
    case Phase::kName:
      if (c == '(') return BeginCall(out) ? State::kMore : State::kBad;
      word_ += c;
      return IsName(c, false) && word_.size() <= kMaxNameBytes ? State::kMore : State::kBad;
    case Phase::kKey:
      if (c == '=') BeginValue(out);
      if (c == '=' || space) return State::kMore;
      word_ += c;
      return IsName(c, false) && word_.size() <= kMaxNameBytes ? State::kMore : State::kBad;
    case Phase::kAfterValue:
      if (c == ')') return EndCall(out);
      if (c == ',') phase_ = Phase::kKeyOrEnd;
      return space || c == ',' ? State::kMore : State::kBad;
    default:
      if (c == ']') return State::kDone;
      if (c == ',') phase_ = Phase::kBeforeName;
      return space || c == ',' ? State::kMore : State::kBad;
  }
}

bool PythonCalls::BeginCall(ChatEvents& out) {
  if (known_ != nullptr && !known_->Has(word_)) return false;
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
  phase_ = Phase::kAfterCall;
  return State::kCallEnded;
}

CallReader::State PythonCalls::Finish(ChatEvents&) {
  return phase_ == Phase::kAfterCall ? State::kDone : State::kBad;
}

}  // namespace baton
