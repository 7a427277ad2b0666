#include "common/chat_format/tagged_calls.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace baton {
namespace {

std::vector<std::string> KeyEnds(const CallSyntax& syntax) {
  std::vector<std::string> ends = syntax.All();
  ends.insert(ends.begin(), syntax.key_end);
  return ends;
}

}  // namespace

TaggedCalls::TaggedCalls(const CallSyntax& syntax, const CallNames& names, const ToolSchemas& tools)
    : syntax_(syntax),
      tools_(tools),
      names_(names),
      markers_(syntax.All()),
      key_ends_(KeyEnds(syntax)) {}

CallReader::State TaggedCalls::Read(std::string_view& text, ChatEvents& out) {
  return ReadParts(text, phase_, [&] { return ReadPart(text, out); });
}

CallReader::State TaggedCalls::ReadPart(std::string_view& text, ChatEvents& out) {
  switch (phase_) {
    case Phase::kName:
      return ReadName(text);
    case Phase::kNameEnd:
      return ReadNameEnd(text);
    case Phase::kInCall:
      return ReadInCall(text, out);
    case Phase::kKey:
      return ReadKey(text, out);
    case Phase::kBeforeValue:
      return ReadBeforeValue(text);
    default:
      return ReadValue(text, out);
  }
}

CallReader::State TaggedCalls::ReadName(std::string_view& text) {
  if (!TakeName(text, name_)) return State::kBad;
  if (text.empty()) return State::kMore;
  phase_ = Phase::kNameEnd;
  return names_.Allow(name_) ? State::kMore : State::kBad;
}

CallReader::State TaggedCalls::ReadNameEnd(std::string_view& text) {
  text.remove_prefix(SpaceAtFront(text));
  const Begins begins = BeginsWith(text, syntax_.name_end);
  if (begins == Begins::kNo) return State::kBad;
  if (begins == Begins::kMaybe) return State::kMore;
  text.remove_prefix(syntax_.name_end.size());
  phase_ = Phase::kInCall;
  return State::kMore;
}

CallReader::State TaggedCalls::ReadInCall(std::string_view& text, ChatEvents& out) {
  text.remove_prefix(SpaceAtFront(text));
  if (text.empty()) return State::kMore;
  const Markers::Found found = markers_.Find(text);
  if (found.at > 0) return State::kBad;
  if (found.marker < 0) return State::kMore;
  const std::string_view marker = markers_[found.marker];
  const bool ends = syntax_.IsClosing(marker);
  if (!ends && marker != syntax_.key_begin && marker != syntax_.value_end) return State::kBad;
  BeginCall(out);
  text.remove_prefix(marker.size());
  if (ends) {
    out.Arguments("}");
    out.EndCall();
    return State::kDone;
  }
  // A second closing tag of a value is dropped.
  if (marker == syntax_.key_begin) phase_ = Phase::kKey;
  return State::kMore;
}

void TaggedCalls::BeginCall(ChatEvents& out) {
  if (std::exchange(begun_, true)) return;
  out.BeginCall(name_);
  out.Arguments("{");
}

CallReader::State TaggedCalls::ReadKey(std::string_view& text, ChatEvents& out) {
  const Markers::Found found = key_ends_.Find(text);
  const size_t length = std::min(found.at, kMaxCallNameBytes - key_.size());
  key_ += text.substr(0, length);
  text.remove_prefix(length);
  if (length < found.at) return State::kBad;
  if (found.marker < 0) return State::kMore;
  if (key_ends_[found.marker] != syntax_.key_end) return State::kBad;
  text.remove_prefix(syntax_.key_end.size());
  return BeginKey(std::exchange(key_, {}), out) ? State::kMore : State::kBad;
}

bool TaggedCalls::BeginKey(std::string_view key, ChatEvents& out) {
  // DSML states the type behind the name: p" string="true
  constexpr std::string_view kIsString = "\" string=\"true";
  constexpr std::string_view kIsOther = "\" string=\"false";
  std::optional<ParameterType> type;
  if (key.ends_with(kIsString)) {
    key.remove_suffix(kIsString.size());
    type = ParameterType::kString;
  } else if (key.ends_with(kIsOther)) {
    key.remove_suffix(kIsOther.size());
    type = ParameterType::kOther;
  }
  key = Trimmed(key);
  if (key.empty()) return false;
  std::string json = first_key_ ? "\"" : ", \"";
  AppendEscaped(key, json);
  json += "\": ";
  out.Arguments(json);
  first_key_ = false;
  value_.emplace(type.value_or(tools_.TypeOf(name_, key)), syntax_.in_lines);
  phase_ = syntax_.value_begin.empty() ? Phase::kValue : Phase::kBeforeValue;
  return true;
}

CallReader::State TaggedCalls::ReadBeforeValue(std::string_view& text) {
  text.remove_prefix(SpaceAtFront(text));
  const Begins begins = BeginsWith(text, syntax_.value_begin);
  if (begins == Begins::kNo) return State::kBad;
  if (begins == Begins::kMaybe) return State::kMore;
  text.remove_prefix(syntax_.value_begin.size());
  phase_ = Phase::kValue;
  return State::kMore;
}

CallReader::State TaggedCalls::ReadValue(std::string_view& text, ChatEvents& out) {
  const Markers::Found found = markers_.Find(text);
  value_->Append(text.substr(0, found.at), out);
  text.remove_prefix(found.at);
  if (found.marker < 0) return State::kMore;
  value_->Finish(out);
  value_.reset();
  phase_ = Phase::kInCall;
  // Another marker than the value's own end is read as in a call.
  if (markers_[found.marker] == syntax_.value_end) text.remove_prefix(syntax_.value_end.size());
  return State::kMore;
}

}  // namespace baton
