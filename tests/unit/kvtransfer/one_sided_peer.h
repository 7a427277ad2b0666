#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kvtransfer/cuda_ipc/ipc_socket.h"
#include "kvtransfer/options.h"
#include "kvtransfer/sideband/frame_socket.h"
#include "kvtransfer/transport.h"

// Helpers for tests that act as one end of a one-sided channel, frame by frame.
namespace baton {

inline constexpr uint64_t kKey = 77;
inline constexpr Duration kFence = std::chrono::milliseconds(100);

inline TransportOptions Options() {
  TransportOptions options;
  options.fence_timeout = kFence;
  return options;
}

inline SidebandFrame FrameOf(SidebandType type, uint64_t key = 0) {
  SidebandFrame frame;
  frame.header.type = type;
  frame.header.key = key;
  return frame;
}

// The two ends of a connection.
inline std::array<std::unique_ptr<FrameSocket>, 2> ConnectedSockets() {
  int fds[2] = {};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
  return {std::make_unique<IpcSocket>(UniqueFd(fds[0])),
          std::make_unique<IpcSocket>(UniqueFd(fds[1]))};
}

// Whether the transport's wait_fd becomes readable within `milliseconds`.
inline bool IsWokenIn(int milliseconds, const Transport& transport) {
  pollfd ready{transport.wait_fd(), POLLIN, 0};
  return ::poll(&ready, 1, milliseconds) == 1;
}

// The frames received from a socket, and whether it is still open.
struct Heard {
  std::vector<SidebandFrame> frames;
  bool is_open = true;

  const SidebandFrame* Last(SidebandType type) const {
    for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
      if (frame->header.type == type) return &*frame;
    }
    return nullptr;
  }
};

inline void Hear(FrameSocket& socket, Heard& heard) {
  while (heard.is_open) {
    auto frame = socket.Receive();
    heard.is_open = frame.ok();
    if (!frame.ok() || !frame->has_value()) return;
    heard.frames.push_back(**std::move(frame));
  }
}

}  // namespace baton
