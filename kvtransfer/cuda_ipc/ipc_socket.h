#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/base/unique_fd.h"
#include "kvtransfer/cuda_ipc/ipc_frame.h"

namespace baton {

// Sends and receives frames on a non-blocking local socket. What the socket does not take waits
// here. One thread.
class IpcSocket final {
 public:
  explicit IpcSocket(UniqueFd socket);

  int fd() const { return socket_.get(); }
  // Frames that the socket has not taken yet.
  size_t waiting() const { return out_.size(); }

  // Queues the frame behind those that wait, and sends what the socket takes. An error: the
  // connection is broken.
  Status Send(const IpcFrame& frame);
  Status Flush();
  // The next frame, or nothing when none is there. OutOfRange: the peer closed the connection;
  // InvalidArgument: it sent something that is not a frame.
  StatusOr<std::optional<IpcFrame>> Receive();

 private:
  const UniqueFd socket_;
  std::deque<std::string> out_;
  std::vector<std::byte> buffer_;
};

}  // namespace baton
