#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/chat_format/call_scanner.h"
#include "common/chat_format/chat_event.h"

namespace baton {

// The end of reasoning that may never be closed: calls, if nothing but calls follows to the end of
// the output. Not thread-safe.
class PossibleCalls final {
 public:
  explicit PossibleCalls(const CallOptions& options) : scanner_(options) {}

  // False: the text is more than calls.
  bool Append(std::string_view text) {
    scanner_.Append(text, events_);
    return Keep();
  }
  // The events of the calls; empty if the text is not only whole calls.
  std::vector<ChatEvent> Finish() {
    scanner_.Finish(events_);
    if (!Keep()) return {};
    const bool ends = !kept_.empty() && kept_.back().kind == ChatEvent::Kind::kCallEnd;
    return ends ? std::move(kept_) : std::vector<ChatEvent>();
  }

 private:
  bool Keep() {
    bool calls = true;
    for (ChatEvent& event : events_.Take()) {
      calls &=
          event.kind != ChatEvent::Kind::kContent && event.kind != ChatEvent::Kind::kCallFailed;
      kept_.push_back(std::move(event));
    }
    return calls;
  }

  CallScanner scanner_;
  ChatEvents events_;
  std::vector<ChatEvent> kept_;
};

}  // namespace baton
