#include "common/chat_format/marked_calls.h"

#include <algorithm>

namespace baton {
namespace {

constexpr std::string_view kFence = "```";
constexpr size_t kMaxFenceBytes = 64;

}  // namespace

CallReader::State MarkedCalls::Read(std::string_view& text, ChatEvents& out) {
  return ReadParts(text, phase_, [&] { return ReadPart(text, out); });
}

CallReader::State MarkedCalls::ReadPart(std::string_view& text, ChatEvents& out) {
  switch (phase_) {
    case Phase::kHeader:
      return ReadHeader(text);
    case Phase::kName:
      return ReadName(text);
    case Phase::kBefore:
      return ReadBefore(text, out);
    case Phase::kFence:
      return ReadFence(text);
    default:
      return arguments_.Read(text, out);
  }
}

CallReader::State MarkedCalls::ReadHeader(std::string_view& text) {
  const Markers::Found found = markers_.Find(text);
  header_ += text.substr(0, found.at);
  text.remove_prefix(found.at);
  if (header_.size() > kMaxCallNameBytes) return State::kBad;
  if (found.marker < 0) return State::kMore;
  if (markers_[found.marker] != syntax_.arguments_begin) return State::kBad;
  text.remove_prefix(syntax_.arguments_begin.size());
  header_ = std::string(Trimmed(header_));
  phase_ = !header_is_id_ && header_ == "function" ? Phase::kName : Phase::kBefore;
  return State::kMore;
}

// A tool may be called "function": then no name follows.
CallReader::State MarkedCalls::ReadName(std::string_view& text) {
  if (!TakeName(text, line_)) return State::kBad;
  if (text.empty()) return State::kMore;
  if (!line_.empty()) header_ = line_;
  phase_ = Phase::kBefore;
  return State::kMore;
}

CallReader::State MarkedCalls::ReadBefore(std::string_view& text, ChatEvents& out) {
  text.remove_prefix(SpaceAtFront(text));
  if (text.empty()) return State::kMore;
  if (text.front() == '{') {
    phase_ = Phase::kArguments;
    return BeginCall(out) ? State::kMore : State::kBad;
  }
  const Begins fence = BeginsWith(text, kFence);
  if (fence == Begins::kYes) {
    text.remove_prefix(kFence.size());
    phase_ = Phase::kFence;
    return State::kMore;
  }
  const Begins none = TakeNoArguments(text);
  if (none == Begins::kYes) return EndWithoutArguments(out);
  if (fence == Begins::kMaybe || none == Begins::kMaybe) return State::kMore;
  const Markers::Found found = markers_.Find(text);
  if (found.at > 0) return State::kBad;
  return found.marker < 0 ? State::kMore : EndWithoutArguments(out);
}

CallReader::State MarkedCalls::ReadFence(std::string_view& text) {
  // The words of the fence end with its line.
  const size_t end = text.find_first_of(std::string_view("\n{<\xFF"));
  const size_t length = std::min(end, text.size());
  fence_bytes_ += length;
  text.remove_prefix(length);
  if (fence_bytes_ > kMaxFenceBytes) return State::kBad;
  if (end != std::string_view::npos) phase_ = Phase::kBefore;
  return State::kMore;
}

CallReader::State MarkedCalls::EndWithoutArguments(ChatEvents& out) const {
  if (!BeginCall(out)) return State::kBad;
  out.Arguments("{}");
  out.EndCall();
  return State::kDone;
}

bool MarkedCalls::BeginCall(ChatEvents& out) const {
  std::string_view name = header_;
  constexpr std::string_view kFunctions = "functions.";
  if (header_is_id_) {
    if (name.starts_with(kFunctions)) name.remove_prefix(kFunctions.size());
    name = name.substr(0, name.rfind(':'));
  }
  if (!names_.Allow(name)) return false;
  out.BeginCall(name, header_is_id_ ? header_ : "");
  return true;
}

}  // namespace baton
