#pragma once

#include "kvtransfer/messages/messages.h"

namespace baton {

// Sends control messages to one peer. Implemented by the workers (gRPC) and by tests.
class ControlStream {
 public:
  virtual ~ControlStream() = default;
  // Queues the message. Must not block, and must be safe from any thread. After an error the
  // message is lost: the session repeats it, or times out.
  virtual Status Send(const Envelope& envelope) = 0;
};

}  // namespace baton
