#include "common/chat_format/reasoning_splitter.h"

#include <utility>

namespace baton {

ReasoningSplitter::ReasoningSplitter(const ReasoningMarkers& markers, bool begun)
    : begin_(markers.begin),
      end_({markers.end}),
      phase_(begun ? Phase::kReasoning : Phase::kStart) {}

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
  const std::string_view rest = std::string_view(held_).substr(spaces_);
  if (rest.size() < begin_.size() && begin_.starts_with(rest)) return "";
  std::string all = std::exchange(held_, {});
  if (!std::string_view(all).substr(spaces_).starts_with(begin_)) {
    phase_ = Phase::kContent;
    return all;
  }
  phase_ = Phase::kReasoning;
  return TakeReasoning(std::string_view(all).substr(spaces_ + begin_.size()), out);
}

std::string ReasoningSplitter::TakeReasoning(std::string_view text, ChatEvents& out) {
  const std::string all = std::exchange(held_, {}) + std::string(text);
  const Markers::Found found = end_.Find(all);
  const std::string_view reasoning = std::string_view(all).substr(0, found.at);
  size_t end = reasoning.size();
  while (end > 0 && IsSpace(reasoning[end - 1])) --end;
  if (end > 0) {
    size_t begin = 0;
    while (!any_ && IsSpace(reasoning[begin])) ++begin;
    if (any_) out.Reasoning(space_);
    space_.clear();
    out.Reasoning(reasoning.substr(begin, end - begin));
    any_ = true;
  }
  space_ += reasoning.substr(end);
  if (found.marker < 0) {
    held_ = all.substr(found.at);
    return "";
  }
  phase_ = Phase::kAfter;
  return TakeAfter(std::string_view(all).substr(found.at + end_[0].size()));
}

std::string ReasoningSplitter::TakeAfter(std::string_view text) {
  while (!text.empty() && IsSpace(text.front())) text.remove_prefix(1);
  if (!text.empty()) phase_ = Phase::kContent;
  return std::string(text);
}

std::string ReasoningSplitter::Finish(ChatEvents& out) {
  if (phase_ == Phase::kReasoning && !held_.empty()) {
    out.Reasoning(std::exchange(space_, {}));
    out.Reasoning(held_);
    return "";
  }
  return phase_ == Phase::kStart ? held_ : "";
}

}  // namespace baton
