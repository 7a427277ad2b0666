#include "common/chat_format/functionary_messages.h"

#include "common/chat_format/markers.h"

namespace baton {
namespace {

constexpr std::string_view kUser = "all";

}  // namespace

CallReader::State FunctionaryMessages::Read(std::string_view& text, ChatEvents& out) {
  return ReadParts(text, phase_, [&] {
    if (phase_ == Phase::kRecipient) return ReadRecipient(text);
    return phase_ == Phase::kBefore ? ReadBefore(text, out) : arguments_.Read(text, out);
  });
}

// No white space is allowed: ">>> f" is the prompt of Python's shell.
CallReader::State FunctionaryMessages::ReadRecipient(std::string_view& text) {
  if (recipient_.empty() && !IsNameByte(text.front())) return State::kBad;
  if (!TakeName(text, recipient_)) return State::kBad;
  if (text.empty()) return State::kMore;
  const bool is_text = recipient_ == kUser;
  if (text.front() != '\n' || (!is_text && !names_.Allow(recipient_))) return State::kBad;
  text.remove_prefix(1);
  phase_ = Phase::kBefore;
  return is_text ? State::kDone : State::kMore;
}

CallReader::State FunctionaryMessages::ReadBefore(std::string_view& text, ChatEvents& out) {
  text.remove_prefix(SpaceAtFront(text));
  if (text.empty()) return State::kMore;
  if (text.front() == '{') {
    out.BeginCall(recipient_);
    phase_ = Phase::kArguments;
    return State::kMore;
  }
  const Begins next = BeginsWith(text, next_);
  const Begins none = TakeNoArguments(text);
  if (next == Begins::kYes || none == Begins::kYes) return EndWithoutArguments(out);
  return next == Begins::kMaybe || none == Begins::kMaybe ? State::kMore : State::kBad;
}

CallReader::State FunctionaryMessages::EndWithoutArguments(ChatEvents& out) const {
  out.BeginCall(recipient_);
  out.Arguments("{}");
  out.EndCall();
  return State::kDone;
}

CallReader::State FunctionaryMessages::Finish(ChatEvents& out) {
  return phase_ == Phase::kBefore ? EndWithoutArguments(out) : State::kBad;
}

}  // namespace baton
