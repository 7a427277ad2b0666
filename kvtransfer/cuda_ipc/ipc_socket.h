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

// Sends and receives frames on a non-blocking local socket. Frames that do not fit into the socket
// wait in a queue. One thread.
class IpcSocket final {
 public:
  explicit IpcSocket(UniqueFd socket);

  int fd() const { return socket_.get(); }
  // The number of queued frames.
  size_t waiting() const { return out_.size(); }

  // Queues the frame, and sends as many queued frames as fit. An error: the connection is broken.
  Status Send(const IpcFrame& frame);
  Status Flush();
  // The next frame, or nothing if none has arrived. OutOfRange: the peer closed the connection;
  // InvalidArgument: the peer sent bytes that are not a frame.
  StatusOr<std::optional<IpcFrame>> Receive();

 private:
  const UniqueFd socket_;
  std::deque<std::string> out_;
  std::vector<std::byte> buffer_;
};

}  // namespace baton
