#include "common/chat_format/json_call.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/json.h"
#include "common/chat_format/markers.h"

namespace baton {
namespace {

constexpr size_t kMaxNameBytes = 4096;  // of a key, a name or an id as JSON text

// The value of a JSON string.
StatusOr<std::string> Unquoted(const std::string& json) {
  BATON_ASSIGN_OR_RETURN(const auto value, ParseOrderedJson("the string", json));
  if (!value.is_string()) return InvalidArgument("not a string");
  return value.get<std::string>();
}

bool IsObject(const std::string& json) {
  const size_t begin = json.find_first_not_of(" \n\t\r");
  return begin != std::string::npos && json[begin] == '{' && IsJson(json);
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
    const char c = text.front();
    const State state = TakeByte(c, out);
    // The first byte of a key or value is left to the scanner.
    if (phase_ != Phase::kKey && phase_ != Phase::kInValue) text.remove_prefix(1);
    return state;
  }
  const size_t length = scanner_.Scan(text);
  streams_ ? out.Arguments(text.substr(0, length)) : void(gathered_.append(text, 0, length));
  text.remove_prefix(length);
  const bool may_be_long = phase_ == Phase::kInValue && member_ == Member::kArguments;
  if (!may_be_long && gathered_.size() > kMaxNameBytes) return State::kBad;
  if (scanner_.state() != State::kDone) return scanner_.state();
  const bool good = phase_ == Phase::kKey ? EndKey() : EndValue(out);
  return good ? State::kMore : State::kBad;
}

JsonCall::State JsonCall::TakeByte(char c, ChatEvents& out) {
  if (phase_ != Phase::kBegin && IsSpace(c)) return State::kMore;
  bool good = false;
  switch (phase_) {
    case Phase::kBegin:
      good = c == '{';
      phase_ = Phase::kKeyOrEnd;
      break;
    case Phase::kKeyOrEnd:
      if (c == '}') return End(out);
      good = c == '"';
      BeginKey();
      break;
    case Phase::kColon:
      good = c == ':';
      phase_ = Phase::kValue;
      break;
    case Phase::kValue:
      good = BeginValue(c, out);
      break;
    default:
      if (c == '}') return End(out);
      good = c == ',';
      phase_ = Phase::kKeyOrEnd;
      break;
  }
  return good ? State::kMore : State::kBad;
}

void JsonCall::BeginKey() {
  phase_ = Phase::kKey;
  scanner_ = {};
  gathered_.clear();
  streams_ = false;
}

bool JsonCall::EndKey() {
  phase_ = Phase::kColon;
  if (gathered_ == "\"name\"") {
    member_ = Member::kName;
    return !named_;
  }
  if (gathered_ == "\"arguments\"" || gathered_ == "\"parameters\"") {
    member_ = Member::kArguments;
    return !std::exchange(has_arguments_, true);
  }
  member_ = gathered_ == "\"id\"" ? Member::kId : Member::kOther;
  return member_ == Member::kId || gathered_ == "\"type\"" || gathered_ == "\"index\"";
}

bool JsonCall::BeginValue(char c, ChatEvents& out) {
  phase_ = Phase::kInValue;
  scanner_ = {};
  gathered_.clear();
  if (member_ != Member::kArguments) return member_ != Member::kName || c == '"';
  if (c != '{' && c != '"') return false;
  streams_ = named_ && c == '{';
  if (!streams_) return true;
  out.BeginCall(name_, id_);
  begun_ = true;
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
  if (gathered_.front() == '"') arguments_ = Unquoted(gathered_).value_or("");
  if (!IsObject(arguments_)) return false;
  if (!named_) return true;
  out.BeginCall(name_, id_);
  out.Arguments(arguments_);
  begun_ = true;
  return true;
}

bool JsonCall::SetName(ChatEvents& out) {
  StatusOr<std::string> name = Unquoted(gathered_);
  if (!name.ok() || name->empty()) return false;
  if (known_ != nullptr && !known_->Has(*name)) return false;
  name_ = *std::move(name);
  named_ = true;
  if (!has_arguments_) return true;
  out.BeginCall(name_, id_);
  out.Arguments(arguments_);
  begun_ = true;
  return true;
}

JsonCall::State JsonCall::End(ChatEvents& out) {
  if (!named_) return State::kBad;
  if (!begun_) {
    if (known_ != nullptr) return State::kBad;
    out.BeginCall(name_, id_);
    out.Arguments("{}");
  }
  out.EndCall();
  return State::kDone;
}

}  // namespace baton
