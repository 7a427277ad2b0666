#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace baton {

// What a FrameServer serves: the receiving end of one peer's channel. Never blocks. Owned by the
// server; its thread only.
class PeerConnection {
 public:
  virtual ~PeerConnection() = default;

  // Moves on by about `quantum` bytes. An error says why the connection must be closed; OutOfRange:
  // the peer closed it in good order.
  virtual Status Step(Time now, size_t quantum) = 0;
  // Nothing may land through the window any more.
  virtual void OnWindowClosed(uint64_t key) = 0;

  virtual int fd() const = 0;
  virtual const std::string& peer() const = 0;
  // Since when it has been waiting for the rest of something; kNever between two frames.
  virtual Time stalled_since() const = 0;
  virtual bool in_preface() const = 0;
  // Answers are waiting for the socket to take them.
  virtual bool wants_write() const = 0;
  // Something goes on without the socket: Step is to be called for it.
  virtual bool is_landing() const { return false; }
  // The last Step ended for its quantum, or because too much waits, not for want of input.
  virtual bool has_more() const = 0;
};

}  // namespace baton
