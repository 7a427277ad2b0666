#include "common/chat_format/reasoning_splitter.h"

#include <utility>
#include <vector>

namespace baton {
namespace {

std::vector<std::string> MarkersIn(std::string end, const CallOptions& calls) {
  std::vector<std::string> markers = SyntaxOf(calls.format, calls.special).Beginnings();
  markers.insert(markers.begin(), std::move(end));
  return markers;
}

}  // namespace

ReasoningSplitter::ReasoningSplitter(const ReasoningMarkers& markers,
                                     bool begun,
                                     const CallOptions& calls)
    : begin_(calls.special.Signed(markers.begin)),
      calls_(calls),
      markers_(MarkersIn(calls.special.Signed(markers.end), calls)),
      begun_(begun) {}

std::string ReasoningSplitter::Append(std::string_view text, ChatEvents& out) {
  switch (phase_) {
    case Phase::kStart:
      return TakeStart(text, out);
    case Phase::kReasoning:
      return TakeReasoning(text, out);
    case Phase::kAfter:
      return TakeAfter(text);
    case Phase::kContent:
      break;
  }
  return std::string(text);
}

std::string ReasoningSplitter::TakeStart(std::string_view text, ChatEvents& out) {
  held_ += text;
  while (spaces_ < held_.size() && IsSpace(held_[spaces_])) ++spaces_;
  const Begins begins = BeginsWith(std::string_view(held_).substr(spaces_), begin_);
  if (begins == Begins::kMaybe) return "";
  std::string all = std::exchange(held_, {});
  if (begins == Begins::kYes) all.erase(0, spaces_ + begin_.size());
  phase_ = begun_ || begins == Begins::kYes ? Phase::kReasoning : Phase::kContent;
  return phase_ == Phase::kContent ? all : TakeReasoning(all, out);
}

std::string ReasoningSplitter::TakeReasoning(std::string_view text, ChatEvents& out) {
  std::string joined = std::exchange(held_, {});
  if (!joined.empty()) text = joined += text;
  while (true) {
    const Markers::Found found = markers_.Find(text);
    AddText(text.substr(0, found.at), out);
    text.remove_prefix(found.at);
    if (found.marker < 0) {
      held_ = text;
      return "";
    }
    const std::string_view marker = markers_[found.marker];
    text.remove_prefix(marker.size());
    if (found.marker == 0) break;
    BeginCalls(marker, out);
  }
  GiveCallsUp(out);
  phase_ = Phase::kAfter;
  return TakeAfter(text);
}

void ReasoningSplitter::AddText(std::string_view text, ChatEvents& out) {
  if (!possible_.has_value()) return AddReasoning(text, out);
  possible_text_ += text;
  if (!possible_->Append(text)) GiveCallsUp(out);
}

void ReasoningSplitter::BeginCalls(std::string_view marker, ChatEvents& out) {
  if (possible_.has_value() && !possible_->Append(marker)) GiveCallsUp(out);
  if (!possible_.has_value()) possible_.emplace(calls_).Append(marker);
  possible_text_ += marker;
}

void ReasoningSplitter::GiveCallsUp(ChatEvents& out) {
  possible_.reset();
  AddReasoning(std::exchange(possible_text_, {}), out);
}

void ReasoningSplitter::AddReasoning(std::string_view text, ChatEvents& out) {
  size_t end = text.size();
  while (end > 0 && IsSpace(text[end - 1])) --end;
  if (end > 0) {
    const size_t begin = any_ ? 0 : SpaceAtFront(text);
    if (any_) out.Reasoning(space_);
    space_.clear();
    out.Reasoning(text.substr(begin, end - begin));
    any_ = true;
  }
  space_ += text.substr(end);
}

// Some models write the closing marker twice.
std::string ReasoningSplitter::TakeAfter(std::string_view text) {
  std::string joined = std::exchange(held_, {});
  if (!joined.empty()) text = joined += text;
  while (true) {
    text.remove_prefix(SpaceAtFront(text));
    if (text.empty()) return "";
    const std::string_view end = markers_[0];
    switch (BeginsWith(text, end)) {
      case Begins::kYes:
        text.remove_prefix(end.size());
        break;
      case Begins::kMaybe:
        held_ = text;
        return "";
      case Begins::kNo:
        phase_ = Phase::kContent;
        return std::string(text);
    }
  }
}

std::string ReasoningSplitter::Finish(ChatEvents& out) {
  if (!in_reasoning()) return std::exchange(held_, {});
  AddText(std::exchange(held_, {}), out);
  std::vector<ChatEvent> calls =
      possible_.has_value() ? possible_->Finish() : std::vector<ChatEvent>();
  if (calls.empty()) {
    GiveCallsUp(out);
  } else {
    out.Add(std::move(calls));
  }
  return "";
}

}  // namespace baton
