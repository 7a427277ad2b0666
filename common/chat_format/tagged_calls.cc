#include "common/chat_format/tagged_calls.h"

#include <algorithm>

#include "common/chat_format/markers.h"

namespace baton {
namespace {

constexpr size_t kMaxNameBytes = 4096;

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && IsSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace

const TaggedFormat kQwenCoderCalls = {.call_begin = "<function=",
                                      .name_end = ">",
                                      .key_begin = "<parameter=",
                                      .key_end = ">",
                                      .value_begin = "",
                                      .value_end = "</parameter>",
                                      .call_end = "</function>",
                                      .section_end = "</tool_call>",
                                      .in_lines = true};
const TaggedFormat kGlmCalls = {.call_begin = "",
                                .name_end = "",
                                .key_begin = "<arg_key>",
                                .key_end = "</arg_key>",
                                .value_begin = "<arg_value>",
                                .value_end = "</arg_value>",
                                .call_end = "</tool_call>",
                                .section_end = ""};
const TaggedFormat kDsmlCalls = {.call_begin = "<｜DSML｜invoke name=\"",
                                 .name_end = "\">",
                                 .key_begin = "<｜DSML｜parameter name=\"",
                                 .key_end = "\">",
                                 .value_begin = "",
                                 .value_end = "</｜DSML｜parameter>",
                                 .call_end = "</｜DSML｜invoke>",
                                 .section_end = "</｜DSML｜function_calls>"};

TaggedCalls::TaggedCalls(const TaggedFormat& format, const ToolSchemas& tools, bool in_call)
    : format_(format),
      tools_(tools),
      phase_(in_call || format.call_begin.empty() ? Phase::kName : Phase::kBetween) {}

CallReader::State TaggedCalls::Read(std::string_view& text, ChatEvents& out) {
  while (!text.empty()) {
    if (phase_ == Phase::kValue) {
      ReadValue(text, out);
      continue;
    }
    const char c = text.front();
    const bool begins_tag = c == '<' && phase_ == Phase::kName && format_.name_end.empty();
    if (begins_tag) {
      // The '<' is left to the tag.
      if (!BeginCall(held_, out)) return State::kBad;
      continue;
    }
    text.remove_prefix(1);
    const State state = TakeByte(c, out);
    if (state != State::kMore) return state;
  }
  return State::kMore;
}

CallReader::State TaggedCalls::TakeByte(char c, ChatEvents& out) {
  switch (phase_) {
    case Phase::kBetween:
      return TakeBetween(c);
    case Phase::kName:
      return TakeName(c, out);
    case Phase::kInCall:
      return TakeInCall(c, out);
    case Phase::kKey:
      return TakeKey(c, out);
    default:
      return TakeBeforeValue(c);
  }
}

CallReader::State TaggedCalls::TakeBetween(char c) {
  if (held_.empty() && IsSpace(c)) return State::kMore;
  held_ += c;
  if (held_ == format_.section_end) return any_ ? State::kDone : State::kBad;
  if (held_ == format_.call_begin) {
    held_.clear();
    phase_ = Phase::kName;
    return State::kMore;
  }
  const bool begins =
      format_.section_end.starts_with(held_) || format_.call_begin.starts_with(held_);
  return begins ? State::kMore : State::kBad;
}

CallReader::State TaggedCalls::TakeName(char c, ChatEvents& out) {
  if (format_.name_end.empty()) {
    if (c == '\n' && !Trimmed(held_).empty()) {
      return BeginCall(held_, out) ? State::kMore : State::kBad;
    }
  }
  held_ += c;
  if (held_.size() > kMaxNameBytes) return State::kBad;
  if (format_.name_end.empty() || !held_.ends_with(format_.name_end)) return State::kMore;
  const auto length = held_.size() - format_.name_end.size();
  return BeginCall(held_.substr(0, length), out) ? State::kMore : State::kBad;
}

bool TaggedCalls::BeginCall(std::string_view name, ChatEvents& out) {
  name_ = Trimmed(name);
  held_.clear();
  if (name_.empty()) return false;
  out.BeginCall(name_);
  out.Arguments("{");
  first_key_ = true;
  phase_ = Phase::kInCall;
  return true;
}

CallReader::State TaggedCalls::TakeInCall(char c, ChatEvents& out) {
  if (held_.empty() && IsSpace(c)) return State::kMore;
  held_ += c;
  if (held_ == format_.call_end) {
    out.Arguments("}");
    out.EndCall();
    any_ = true;
    held_.clear();
    phase_ = Phase::kBetween;
    return format_.section_end.empty() ? State::kDone : State::kCallEnded;
  }
  if (held_ == format_.key_begin) {
    held_.clear();
    phase_ = Phase::kKey;
    return State::kMore;
  }
  const bool begins = format_.call_end.starts_with(held_) || format_.key_begin.starts_with(held_);
  return begins ? State::kMore : State::kBad;
}

CallReader::State TaggedCalls::TakeKey(char c, ChatEvents& out) {
  held_ += c;
  if (held_.size() > kMaxNameBytes) return State::kBad;
  if (!held_.ends_with(format_.key_end)) return State::kMore;
  const auto length = held_.size() - format_.key_end.size();
  if (!BeginKey(std::string_view(held_).substr(0, length), out)) return State::kBad;
  held_.clear();
  return State::kMore;
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
  value_.emplace(type.value_or(tools_.TypeOf(name_, key)), format_.in_lines);
  end_matched_ = 0;
  phase_ = format_.value_begin.empty() ? Phase::kValue : Phase::kBeforeValue;
  return true;
}

CallReader::State TaggedCalls::TakeBeforeValue(char c) {
  if (held_.empty() && IsSpace(c)) return State::kMore;
  held_ += c;
  if (!format_.value_begin.starts_with(held_)) return State::kBad;
  if (held_ != format_.value_begin) return State::kMore;
  held_.clear();
  phase_ = Phase::kValue;
  return State::kMore;
}

void TaggedCalls::ReadValue(std::string_view& text, ChatEvents& out) {
  const std::string_view end = format_.value_end;
  while (!text.empty()) {
    if (end_matched_ == 0) {
      const size_t plain = std::min(text.find(end.front()), text.size());
      value_->Append(text.substr(0, plain), out);
      text.remove_prefix(plain);
      if (text.empty()) return;
    }
    // The first byte of the tag occurs nowhere else in the tag, so after a mismatch a new match can
    // only begin at the current byte.
    if (text.front() != end[end_matched_]) {
      value_->Append(end.substr(0, end_matched_), out);
      end_matched_ = 0;
      continue;
    }
    text.remove_prefix(1);
    if (++end_matched_ < end.size()) continue;
    value_->Finish(out);
    value_.reset();
    phase_ = Phase::kInCall;
    return;
  }
}

CallReader::State TaggedCalls::Finish(ChatEvents&) {
  return phase_ == Phase::kBetween && any_ ? State::kDone : State::kBad;
}

}  // namespace baton
