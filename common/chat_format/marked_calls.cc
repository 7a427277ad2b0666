#include "common/chat_format/marked_calls.h"

#include <utility>

#include "common/chat_format/markers.h"

namespace baton {
namespace {

constexpr size_t kMaxHeaderBytes = 4096;
constexpr std::string_view kFenceBegin = "```json\n";
constexpr std::string_view kFenceEnd = "```";

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && IsSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace

const MarkedFormat kDeepSeekCalls = {.call_begin = "<｜tool▁call▁begin｜>",
                                     .arguments_begin = "<｜tool▁sep｜>",
                                     .call_end = "<｜tool▁call▁end｜>",
                                     .section_end = "<｜tool▁calls▁end｜>"};
const MarkedFormat kKimiCalls = {.call_begin = "<|tool_call_begin|>",
                                 .arguments_begin = "<|tool_call_argument_begin|>",
                                 .call_end = "<|tool_call_end|>",
                                 .section_end = "<|tool_calls_section_end|>",
                                 .header_is_id = true};

CallReader::State MarkedCalls::Read(std::string_view& text, ChatEvents& out) {
  while (!text.empty()) {
    if (phase_ == Phase::kBefore && text.front() == '{') {
      if (!BeginCall(out)) return State::kBad;
      scanner_ = {};
      phase_ = Phase::kArguments;
    }
    if (phase_ == Phase::kArguments) {
      const size_t length = scanner_.Scan(text);
      out.Arguments(text.substr(0, length));
      text.remove_prefix(length);
      if (scanner_.state() == JsonScanner::State::kBad) return State::kBad;
      if (scanner_.state() == JsonScanner::State::kMore) return State::kMore;
      out.EndCall();
      any_ = true;
      held_.clear();
      phase_ = Phase::kAfter;
      return State::kCallEnded;
    }
    const State state = TakeByte(text.front(), out);
    if (state == State::kBad) return state;
    if (phase_ != Phase::kBefore || text.front() != '{') text.remove_prefix(1);
    if (state != State::kMore) return state;
  }
  return State::kMore;
}

CallReader::State MarkedCalls::TakeByte(char c, ChatEvents&) {
  switch (phase_) {
    case Phase::kBetween:
      return TakeBetween(c);
    case Phase::kHeader:
      return TakeHeader(c);
    case Phase::kName:
      // A tool may be called "function": then its arguments follow at once.
      if (c == '{' && held_.empty()) {
        phase_ = Phase::kBefore;
      } else if (c == '\n') {
        header_ = std::exchange(held_, {});
        fenced_ = true;
        phase_ = Phase::kFence;
      } else {
        held_ += c;
      }
      return held_.size() > kMaxHeaderBytes ? State::kBad : State::kMore;
    case Phase::kFence:
      held_ += c;
      if (held_ == kFenceBegin) phase_ = Phase::kBefore;
      return kFenceBegin.starts_with(held_) ? State::kMore : State::kBad;
    case Phase::kAfter:
      return TakeAfter(c);
    default:
      return IsSpace(c) ? State::kMore : State::kBad;
  }
}

CallReader::State MarkedCalls::TakeBetween(char c) {
  if (held_.empty() && IsSpace(c)) return State::kMore;
  held_ += c;
  if (held_ == format_.section_end) return any_ ? State::kDone : State::kBad;
  if (held_ == format_.call_begin) {
    held_.clear();
    header_.clear();
    fenced_ = false;
    phase_ = Phase::kHeader;
    return State::kMore;
  }
  const bool begins =
      format_.section_end.starts_with(held_) || format_.call_begin.starts_with(held_);
  return begins ? State::kMore : State::kBad;
}

CallReader::State MarkedCalls::TakeHeader(char c) {
  header_ += c;
  if (!header_.ends_with(format_.arguments_begin)) {
    return header_.size() > kMaxHeaderBytes ? State::kBad : State::kMore;
  }
  header_.resize(header_.size() - format_.arguments_begin.size());
  header_ = Trimmed(header_);
  if (header_.empty()) return State::kBad;
  phase_ = !format_.header_is_id && header_ == "function" ? Phase::kName : Phase::kBefore;
  return State::kMore;
}

CallReader::State MarkedCalls::TakeAfter(char c) {
  if (held_.empty() && IsSpace(c)) return State::kMore;
  held_ += c;
  if (fenced_ && held_ == kFenceEnd) {
    fenced_ = false;
    held_.clear();
    return State::kMore;
  }
  const std::string_view wanted = fenced_ ? kFenceEnd : format_.call_end;
  if (!wanted.starts_with(held_)) return State::kBad;
  if (held_ == wanted) {
    held_.clear();
    phase_ = Phase::kBetween;
  }
  return State::kMore;
}

bool MarkedCalls::BeginCall(ChatEvents& out) const {
  std::string_view name = header_;
  constexpr std::string_view kFunctions = "functions.";
  if (format_.header_is_id) {
    if (name.starts_with(kFunctions)) name.remove_prefix(kFunctions.size());
    name = name.substr(0, name.rfind(':'));
  }
  if (name.empty()) return false;
  out.BeginCall(name, format_.header_is_id ? header_ : "");
  return true;
}

CallReader::State MarkedCalls::Finish(ChatEvents&) {
  const bool after = phase_ == Phase::kAfter || (phase_ == Phase::kBetween && any_);
  return after ? State::kDone : State::kBad;
}

}  // namespace baton
