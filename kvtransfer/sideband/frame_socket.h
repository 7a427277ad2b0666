#pragma once

#include <cstddef>
#include <optional>

#include "common/base/status.h"
#include "kvtransfer/sideband/frame.h"

namespace baton {

// Queued answers beyond which a receiving end reads no further frame from its peer.
inline constexpr size_t kMaxWaitingAnswers = 1024;

// The connection between the two ends of a one-sided channel. Each transport implements it over a
// socket of its own kind. It delivers whole frames in the order in which they were sent, or it
// breaks. No call blocks. Owned by one end of the channel; its thread only. The destructor closes
// the connection; frames that still wait in the queue are lost.
class FrameSocket {
 public:
  virtual ~FrameSocket() = default;

  // Readable when Receive may have a frame, and writable or readable when Flush may send one.
  // Constant.
  virtual int fd() const = 0;
  // The number of frames in the queue.
  virtual size_t waiting() const = 0;

  // Appends the frame to the queue, for the next Flush. Frames that are sent together cost less.
  virtual void Queue(const SidebandFrame& frame) = 0;
  // Sends as many frames of the queue as fit. An error: the connection is broken.
  virtual Status Flush() = 0;
  // Queue, then Flush.
  Status Send(const SidebandFrame& frame) {
    Queue(frame);
    return Flush();
  }
  // The next frame, or nothing if none has arrived. OutOfRange: the peer closed the connection;
  // InvalidArgument: the peer sent bytes that are not a frame; other errors: the connection is
  // broken.
  virtual StatusOr<std::optional<SidebandFrame>> Receive() = 0;
};

}  // namespace baton
