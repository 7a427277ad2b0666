#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/base/unique_fd.h"
#include "kvtransfer/sideband/frame_socket.h"

namespace baton {

// Carries frames over a Unix-domain socket: one frame per message. All frames that the peer sent
// are received before its close is, also if it closed with frames of this end unread: its last
// frame is the one that says that it writes no more. Contract, owner and thread: FrameSocket.
class IpcSocket final : public FrameSocket {
 public:
  // `socket` is non-blocking, connected and of type SOCK_SEQPACKET.
  explicit IpcSocket(UniqueFd socket);

  int fd() const override { return socket_.get(); }
  size_t waiting() const override { return out_.size(); }
  void Queue(const SidebandFrame& frame) override;
  Status Flush() override;
  StatusOr<std::optional<SidebandFrame>> Receive() override;

 private:
  const UniqueFd socket_;
  std::deque<std::string> out_;
  std::vector<std::byte> buffer_;
};

}  // namespace baton
