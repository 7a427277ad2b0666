#include "common/chat_format/json_call.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/json.h"
#include "common/chat_format/call_arguments.h"
#include "common/chat_format/markers.h"

namespace baton {
namespace {

// The value of a JSON string.
StatusOr<std::string> Unquoted(const std::string& json) {
  BATON_ASSIGN_OR_RETURN(const auto value, ParseOrderedJson("the string", json));
  if (!value.is_string()) return InvalidArgument("not a string");
  return value.get<std::string>();
}

bool IsObject(std::string_view json) {
  return Trimmed(json).starts_with('{') && IsJson(json);
}

}  // namespace

JsonCall::State JsonCall::Read(std::string_view& text, ChatEvents& out) {
  while (!text.empty()) {
    const State state = Take(text, out);
    if (state != State::kMore) return state;
  }
  return State::kMore;
}

JsonCall::State JsonCall::Take(std::string_view& text, ChatEvents& out) {
  if (phase_ != Phase::kKey && phase_ != Phase::kInValue) {
    const State state = TakeByte(text.front(), out);
    // The first byte of a key or value is left to the scanner.
    const bool begins = phase_ == Phase::kKey || phase_ == Phase::kInValue;
    if (state != State::kBad && !begins) text.remove_prefix(1);
    return state;
  }
  const bool may_be_long = phase_ == Phase::kInValue && member_ == Member::kArguments;
  const size_t room = may_be_long ? text.size() : kMaxCallNameBytes - gathered_.size();
  const size_t length = scanner_.Scan(text.substr(0, room));
  streams_ ? out.Arguments(text.substr(0, length)) : void(gathered_.append(text, 0, length));
  text.remove_prefix(length);
  if (scanner_.state() == State::kMore && length == room && !may_be_long) return State::kBad;
  if (scanner_.state() != State::kDone) return scanner_.state();
  const bool good = phase_ == Phase::kKey ? EndKey() : EndValue(out);
  return good ? State::kMore : State::kBad;
}

JsonCall::State JsonCall::TakeByte(char c, ChatEvents& out) {
  if (phase_ != Phase::kBegin && IsSpace(c)) return State::kMore;
  switch (phase_) {
    case Phase::kBegin:
      return After(c == '{', Phase::kKeyOrEnd);
    case Phase::kKeyOrEnd:
      if (c == '}') return End(out);
      return After(BeginKey(c), Phase::kKey);
    case Phase::kColon:
      return After(c == ':', Phase::kValue);
    case Phase::kValue:
      return After(BeginValue(c, out), Phase::kInValue);
    default:
      if (c == '}') return End(out);
      return After(c == ',', Phase::kKeyOrEnd);
  }
}

// A phase in which a byte is at fault does not end.
JsonCall::State JsonCall::After(bool good, Phase next) {
  if (!good) return State::kBad;
  phase_ = next;
  return State::kMore;
}

bool JsonCall::BeginKey(char c) {
  scanner_ = {};
  gathered_.clear();
  streams_ = false;
  return c == '"';
}

bool JsonCall::EndKey() {
  phase_ = Phase::kColon;
  if (gathered_ == "\"name\"" || gathered_ == "\"tool_name\"") {
    member_ = Member::kName;
    return !named_;
  }
  if (gathered_ == "\"arguments\"" || gathered_ == "\"parameters\"") {
    member_ = Member::kArguments;
    return !std::exchange(has_arguments_, true);
  }
  member_ = gathered_ == "\"id\"" ? Member::kId : Member::kOther;
  // "tool_call_id" is the number of the call, which is no id for a whole conversation.
  return member_ == Member::kId || gathered_ == "\"type\"" || gathered_ == "\"index\"" ||
         gathered_ == "\"tool_call_id\"";
}

bool JsonCall::BeginValue(char c, ChatEvents& out) {
  scanner_ = {};
  gathered_.clear();
  if (member_ != Member::kArguments) return member_ != Member::kName || c == '"';
  if (c != '{' && c != '"' && c != 'n') return false;
  streams_ = named_ && c == '{';
  if (streams_) BeginCall(out);
  return true;
}

bool JsonCall::EndValue(ChatEvents& out) {
  phase_ = Phase::kCommaOrEnd;
  if (std::exchange(streams_, false)) return true;
  if (member_ == Member::kName) return SetName(out);
  if (member_ == Member::kOther) return true;
  if (member_ == Member::kId) {
    if (gathered_.front() == '"') id_ = Unquoted(gathered_).value_or("");
    return true;
  }
  arguments_ = gathered_;
  if (std::ranges::find(kNoArguments, gathered_) != std::end(kNoArguments)) {
    arguments_ = "{}";
  } else if (gathered_.front() == '"') {
    arguments_ = Unquoted(gathered_).value_or("");
  }
  if (!IsObject(arguments_)) return false;
  if (!named_) return true;
  BeginCall(out);
  out.Arguments(arguments_);
  return true;
}

bool JsonCall::SetName(ChatEvents& out) {
  StatusOr<std::string> name = Unquoted(gathered_);
  if (!name.ok() || !names_.Allow(*name)) return false;
  name_ = *std::move(name);
  named_ = true;
  if (!has_arguments_) return true;
  BeginCall(out);
  out.Arguments(arguments_);
  return true;
}

void JsonCall::BeginCall(ChatEvents& out) {
  out.BeginCall(name_, id_);
  begun_ = true;
}

JsonCall::State JsonCall::End(ChatEvents& out) {
  if (!named_) return State::kBad;
  if (!begun_) {
    if (bare_) return State::kBad;
    BeginCall(out);
    out.Arguments("{}");
  }
  out.EndCall();
  return State::kDone;
}

bool JsonCall::EndWithoutBrace(ChatEvents& out) {
  if (phase_ != Phase::kCommaOrEnd || !begun_) return false;
  out.EndCall();
  return true;
}

BracketSkipper JsonCall::Skipper() const {
  const bool in_value = phase_ == Phase::kKey || phase_ == Phase::kInValue;
  const bool in_string = in_value && scanner_.in_string();
  return {1 + (in_value ? scanner_.depth() : 0), in_string ? '"' : '\0', "\""};
}

}  // namespace baton
