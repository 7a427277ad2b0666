#include "common/chat_format/mistral_calls.h"

namespace baton {

CallReader::State MistralCalls::Read(std::string_view& text, ChatEvents& out) {
  return ReadParts(text, phase_, [&] { return ReadPart(text, out); });
}

CallReader::State MistralCalls::ReadPart(std::string_view& text, ChatEvents& out) {
  switch (phase_) {
    case Phase::kStart:
      return ReadStart(text);
    case Phase::kList:
      return list_->Read(text, out);
    case Phase::kName:
      return ReadWord(text, name_);
    case Phase::kTag:
      return ReadTag(text, out);
    case Phase::kId:
      return ReadWord(text, id_);
    case Phase::kBefore:
      return ReadBefore(text, out);
    default:
      return arguments_.Read(text, out);
  }
}

CallReader::State MistralCalls::ReadStart(std::string_view& text) {
  text.remove_prefix(SpaceAtFront(text));
  if (text.empty()) return State::kMore;
  const bool in_array = text.front() == '[';
  if (!in_array && text.front() != '{') {
    phase_ = Phase::kName;
    return State::kMore;
  }
  const Begins next = BeginsWith(text, next_);
  if (next != Begins::kNo) return next == Begins::kYes ? State::kBad : State::kMore;
  if (in_array) text.remove_prefix(1);
  list_.emplace(names_, JsonCallList::Options{.in_array = in_array});
  phase_ = Phase::kList;
  return State::kMore;
}

CallReader::State MistralCalls::ReadWord(std::string_view& text, std::string& word) {
  if (!TakeName(text, word)) return State::kBad;
  if (!text.empty()) phase_ = Phase::kTag;
  return State::kMore;
}

CallReader::State MistralCalls::ReadTag(std::string_view& text, ChatEvents& out) {
  text.remove_prefix(SpaceAtFront(text));
  if (text.empty()) return State::kMore;
  if (text.front() == '{') return ReadBefore(text, out);
  const Begins args = BeginsWith(text, args_);
  const Begins call_id = id_.empty() ? BeginsWith(text, call_id_) : Begins::kNo;
  if (args == Begins::kYes) {
    text.remove_prefix(args_.size());
    phase_ = Phase::kBefore;
    return State::kMore;
  }
  if (call_id == Begins::kYes) {
    text.remove_prefix(call_id_.size());
    phase_ = Phase::kId;
    return State::kMore;
  }
  const bool maybe = args == Begins::kMaybe || call_id == Begins::kMaybe;
  return maybe ? State::kMore : State::kBad;
}

CallReader::State MistralCalls::ReadBefore(std::string_view& text, ChatEvents& out) {
  text.remove_prefix(SpaceAtFront(text));
  if (text.empty()) return State::kMore;
  if (text.front() == '{') {
    phase_ = Phase::kArguments;
    return BeginCall(out) ? State::kMore : State::kBad;
  }
  const Begins next = BeginsWith(text, next_);
  const Begins none = TakeNoArguments(text);
  if (next == Begins::kYes || none == Begins::kYes) return EndWithoutArguments(out);
  return next == Begins::kMaybe || none == Begins::kMaybe ? State::kMore : State::kBad;
}

CallReader::State MistralCalls::EndWithoutArguments(ChatEvents& out) const {
  if (!BeginCall(out)) return State::kBad;
  out.Arguments("{}");
  out.EndCall();
  return State::kDone;
}

bool MistralCalls::BeginCall(ChatEvents& out) const {
  if (!names_.Allow(name_)) return false;
  out.BeginCall(name_, id_);
  return true;
}

CallReader::State MistralCalls::Finish(ChatEvents& out) {
  if (phase_ == Phase::kList) return list_->Finish(out);
  return phase_ == Phase::kBefore ? EndWithoutArguments(out) : State::kBad;
}

}  // namespace baton
