#pragma once

#include <cstdint>
#include <string_view>

#include "common/chat_format/chat_event.h"

namespace baton {

// Reads the calls of one format behind their opening marker, from text that arrives in parts. The
// events do not depend on how the text is divided. Not thread-safe.
class CallReader {
 public:
  enum class State : uint8_t {
    kMore,       // all of the text was consumed
    kCallEnded,  // a call has ended just here
    kDone,       // the closing marker has ended just here
    kBad,        // the text up to here is not a call
  };

  virtual ~CallReader() = default;
  // Removes what it consumes from the front of `text`.
  virtual State Read(std::string_view& text, ChatEvents& out) = 0;
  // No text follows. kCallEnded: a call ends here, kDone: no call was begun, kBad: a call is cut
  // off.
  virtual State Finish(ChatEvents& out) = 0;
};

}  // namespace baton
