#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/chat_format/chat_event.h"
#include "common/chat_format/chat_format.h"
#include "common/chat_format/markers.h"

namespace baton {

// Cuts the reasoning off the beginning of an output. White space around the reasoning is dropped.
// Not thread-safe.
class ReasoningSplitter final {
 public:
  // `begun`: the prompt ends with the opening marker.
  ReasoningSplitter(const ReasoningMarkers& markers, bool begun);

  // Returns the text that follows the reasoning.
  std::string Append(std::string_view text, ChatEvents& out);
  // The text that is held back, if it is not reasoning.
  std::string Finish(ChatEvents& out);
  bool in_reasoning() const { return phase_ == Phase::kReasoning; }

 private:
  enum class Phase : uint8_t { kStart, kReasoning, kAfter, kContent };

  std::string TakeStart(std::string_view text, ChatEvents& out);
  std::string TakeReasoning(std::string_view text, ChatEvents& out);
  std::string TakeAfter(std::string_view text);

  const std::string_view begin_;
  const Markers end_;
  Phase phase_;
  std::string held_;   // may belong to a marker
  size_t spaces_ = 0;  // kStart: white space at the begin of held_, so that each byte is read once
  std::string space_;  // white space that may be the last of the reasoning
  bool any_ = false;   // some reasoning was written
};

}  // namespace baton
