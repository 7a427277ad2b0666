#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/chat_format/call_scanner.h"
#include "common/chat_format/chat_event.h"
#include "common/chat_format/chat_format.h"
#include "common/chat_format/markers.h"
#include "common/chat_format/possible_calls.h"

namespace baton {

// Cuts the reasoning off the beginning of an output. White space around the reasoning is dropped.
// Calls at the end of reasoning that is never closed are calls: their text is held back until the
// closing marker or other text follows. Not thread-safe.
class ReasoningSplitter final {
 public:
  // `begun`: the prompt ends inside of the reasoning. The output may repeat the opening marker.
  ReasoningSplitter(const ReasoningMarkers& markers, bool begun, const CallOptions& calls);

  // Returns the text that follows the reasoning.
  std::string Append(std::string_view text, ChatEvents& out);
  // The text that is held back, if it is not reasoning.
  std::string Finish(ChatEvents& out);
  // All further text is no reasoning.
  bool done() const { return phase_ == Phase::kContent; }
  bool in_reasoning() const {
    return phase_ == Phase::kReasoning || (phase_ == Phase::kStart && begun_);
  }

 private:
  enum class Phase : uint8_t { kStart, kReasoning, kAfter, kContent };

  std::string TakeStart(std::string_view text, ChatEvents& out);
  std::string TakeReasoning(std::string_view text, ChatEvents& out);
  std::string TakeAfter(std::string_view text);
  // Text without markers.
  void AddText(std::string_view text, ChatEvents& out);
  // A marker with which calls begin.
  void BeginCalls(std::string_view marker, ChatEvents& out);
  void GiveCallsUp(ChatEvents& out);
  void AddReasoning(std::string_view text, ChatEvents& out);

  const std::string begin_;
  const CallOptions calls_;
  const Markers markers_;  // the closing one, and those with which calls begin
  const bool begun_;
  Phase phase_ = Phase::kStart;
  std::string held_;   // may belong to a marker
  size_t spaces_ = 0;  // kStart: white space at the begin of held_, so that each byte is read once
  std::string space_;  // white space that may be the last of the reasoning
  bool any_ = false;   // some reasoning was written
  std::optional<PossibleCalls> possible_;
  std::string possible_text_;
};

}  // namespace baton
