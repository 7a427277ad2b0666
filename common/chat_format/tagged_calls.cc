#include "common/chat_format/tagged_calls.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace baton {
namespace {

// All markers and, first, `end` unless it is empty.
std::vector<std::string> EndsOf(const CallSyntax& syntax, const std::string& end) {
  std::vector<std::string> ends = syntax.All();
  if (!end.empty()) ends.insert(ends.begin(), end);
  return ends;
}

constexpr std::string_view kOtherTypes[] = {
    "false", "number", "boolean", "null", "array", "object"};

// The type that stands behind the name of a parameter, which it removes from `key`: as DSML,
// p" string="true, or as Kimi K3, p" type="number.
std::optional<ParameterType> TakeType(std::string_view& key) {
  for (const std::string_view attribute : {"\" string=\"", "\" type=\""}) {
    const size_t at = key.rfind(attribute);
    if (at == std::string_view::npos) continue;
    const std::string_view value = key.substr(at + attribute.size());
    const bool is_string = value == "true" || value == "string";
    const bool is_other = std::ranges::find(kOtherTypes, value) != std::end(kOtherTypes);
    if (!is_string && !is_other) continue;
    key = key.substr(0, at);
    return is_string ? ParameterType::kString : ParameterType::kOther;
  }
  return std::nullopt;
}

// What stands between the name and the end of the header: nothing, or as Kimi K3, " index="1
bool IsCallNumber(std::string_view text) {
  constexpr std::string_view kIndex = "\" index=\"";
  if (text.empty()) return true;
  if (!text.starts_with(kIndex)) return false;
  text.remove_prefix(kIndex.size());
  return text.size() < 10 && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

TaggedCalls::TaggedCalls(const CallSyntax& syntax, const CallNames& names, const ToolSchemas& tools)
    : syntax_(syntax),
      tools_(tools),
      names_(names),
      markers_(syntax.All()),
      name_ends_(EndsOf(syntax, syntax.name_end)),
      key_ends_(EndsOf(syntax, syntax.key_end)) {}

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
  if (syntax_.numbered) {
    const Markers::Found found = name_ends_.Find(text);
    number_ += text.substr(0, found.at);
    text.remove_prefix(found.at);
    if (number_.size() > kMaxCallNameBytes) return State::kBad;
    if (found.marker < 0) return State::kMore;
    if (!IsCallNumber(number_)) return State::kBad;
  }
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
  const std::optional<ParameterType> type = TakeType(key);
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
