#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/chat_format/chat_event.h"

namespace baton {

// Reads the calls of one format behind their opening marker, from text that arrives in parts. The
// events do not depend on how the text is divided. Not thread-safe.
class CallReader {
 public:
  enum class State : uint8_t {
    kMore,       // more text is needed
    kCallEnded,  // a call has ended just here; others may follow
    kDone,       // the last call, or a header without a call, has ended just here
    kNotCall,    // the text up to here is not a call; calls may follow
    kBad,        // the text up to here is not a call, and no calls follow
  };

  virtual ~CallReader() = default;
  // Removes what it consumes from the front of `text`. With kMore, the rest may be the beginning of
  // a marker, and comes again with the text that follows. A byte at fault is not consumed.
  virtual State Read(std::string_view& text, ChatEvents& out) = 0;
  // No text follows. kDone: no call is open; kBad: a call is cut off.
  virtual State Finish(ChatEvents& out) = 0;
};

// Calls `read_part` as long as it consumes text or goes on to another phase.
template <typename Phase, typename ReadPart>
CallReader::State ReadParts(std::string_view& text, const Phase& phase, ReadPart read_part) {
  while (!text.empty()) {
    const Phase before = phase;
    const size_t size = text.size();
    const CallReader::State state = read_part();
    const bool went_on = phase != before || text.size() != size;
    if (state != CallReader::State::kMore || !went_on) return state;
  }
  return CallReader::State::kMore;
}

}  // namespace baton
