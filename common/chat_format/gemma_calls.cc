#include "common/chat_format/gemma_calls.h"

#include "common/chat_format/markers.h"

namespace baton {
namespace {

constexpr std::string_view kPrefix = "call:";

}  // namespace

CallReader::State GemmaCalls::Read(std::string_view& text, ChatEvents& out) {
  return ReadParts(text, phase_, [&] { return ReadPart(text, out); });
}

CallReader::State GemmaCalls::ReadPart(std::string_view& text, ChatEvents& out) {
  switch (phase_) {
    case Phase::kPrefix:
      return ReadPrefix(text);
    case Phase::kName:
      return ReadName(text);
    case Phase::kBefore:
      return ReadBefore(text, out);
    default:
      return ReadArguments(text, out);
  }
}

CallReader::State GemmaCalls::ReadPrefix(std::string_view& text) {
  text.remove_prefix(SpaceAtFront(text));
  const Begins begins = BeginsWith(text, kPrefix);
  if (begins == Begins::kNo) return State::kBad;
  if (begins == Begins::kMaybe) return State::kMore;
  text.remove_prefix(kPrefix.size());
  phase_ = Phase::kName;
  return State::kMore;
}

CallReader::State GemmaCalls::ReadName(std::string_view& text) {
  if (!TakeName(text, name_)) return State::kBad;
  if (text.empty()) return State::kMore;
  phase_ = Phase::kBefore;
  return names_.Allow(name_) ? State::kMore : State::kBad;
}

CallReader::State GemmaCalls::ReadBefore(std::string_view& text, ChatEvents& out) {
  text.remove_prefix(SpaceAtFront(text));
  if (text.empty()) return State::kMore;
  const bool arguments = text.front() == '{';
  const Begins end = BeginsWith(text, end_);
  if (!arguments && end != Begins::kYes) return end == Begins::kMaybe ? State::kMore : State::kBad;
  out.BeginCall(name_);
  phase_ = Phase::kArguments;
  if (arguments) return State::kMore;
  out.Arguments("{}");
  out.EndCall();
  return State::kDone;
}

CallReader::State GemmaCalls::ReadArguments(std::string_view& text, ChatEvents& out) {
  std::string json;
  State state = arguments_.Read(text, json);
  if (state == State::kBad) {
    const Begins end = BeginsWith(text, end_);
    if (end == Begins::kMaybe) state = State::kMore;
    if (end == Begins::kYes && arguments_.Close(json)) state = State::kDone;
  }
  out.Arguments(json);
  if (state == State::kDone) out.EndCall();
  return state;
}

}  // namespace baton
