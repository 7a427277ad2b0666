#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "common/base/status.h"
#include "common/base/unique_fd.h"
#include "kvtransfer/one_sided/frame_socket.h"

namespace baton {

// Carries frames over a stream socket: each frame follows its length in bytes, a little-endian
// 32-bit number. Contract, owner and thread: FrameSocket.
class StreamSocket final : public FrameSocket {
 public:
  // `socket` is non-blocking and connected, or is connecting.
  explicit StreamSocket(UniqueFd socket) : socket_(std::move(socket)) {}

  int fd() const override { return socket_.get(); }
  size_t waiting() const override { return out_.size(); }
  Status Send(const OneSidedFrame& frame) override;
  Status Flush() override;
  StatusOr<std::optional<OneSidedFrame>> Receive() override;

 private:
  // The next whole frame of `in_`, or nothing.
  StatusOr<std::optional<OneSidedFrame>> TakeFrame();

  const UniqueFd socket_;
  std::deque<std::string> out_;
  size_t sent_ = 0;   // bytes of out_.front()
  std::string in_;    // received bytes
  size_t taken_ = 0;  // bytes of in_ that were returned as frames
};

}  // namespace baton
