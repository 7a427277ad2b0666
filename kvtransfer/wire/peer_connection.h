#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "kvtransfer/transport.h"

namespace baton {

// The receiving end of one peer's channel, which a FrameServer serves. Never blocks. Owned by the
// server; its thread only.
class PeerConnection {
 public:
  virtual ~PeerConnection() = default;

  // Processes about `quantum` bytes. An error is the reason to close the connection; OutOfRange:
  // the peer closed it in good order.
  virtual Status Step(Time now, size_t quantum) = 0;
  // The bytes that the last Step moved into this process's memory, as far as the receiver decides
  // when they move.
  virtual uint64_t moved() const { return 0; }
  // The window was opened. For connections whose peer needs it before it writes.
  virtual void OnWindowOpened(const WriteWindow& /*window*/) {}
  // The window was closed: nothing may land through it any more.
  virtual void OnWindowClosed(uint64_t key) = 0;

  virtual int fd() const = 0;
  virtual const std::string& peer() const = 0;
  // The time since which it waits for the rest of a frame; kNever between two frames.
  virtual Time stalled_since() const = 0;
  virtual bool in_preface() const = 0;
  // Whether answers wait for space in the socket.
  virtual bool wants_write() const = 0;
  // Whether work goes on without the socket, for which Step must be called.
  virtual bool is_landing() const { return false; }
  // Whether the last Step ended because its quantum was used up or too many arrivals are waiting,
  // not for lack of input.
  virtual bool has_more() const = 0;
};

}  // namespace baton
