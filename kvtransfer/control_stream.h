#pragma once

#include "kvtransfer/messages.h"

namespace baton {

// The way to one peer for control messages. Implemented by the workers (gRPC) and by tests.
class ControlStream {
 public:
  virtual ~ControlStream() = default;
  // Queues the message; must not block, and must be safe from any thread. An error means that it is
  // lost: the session repeats it, or times out.
  virtual Status Send(const Envelope& envelope) = 0;
};

}  // namespace baton
