#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "common/base/unique_fd.h"
#include "kvtransfer/control_stream.h"

namespace baton {

// A control stream over a connected socket, for tests and benchmarks with two processes. Each
// message is its length in four bytes, followed by its bytes. Thread-safe.
class SocketControl final : public ControlStream {
 public:
  explicit SocketControl(UniqueFd socket) : socket_(std::move(socket)) {}
  ~SocketControl() override;

  Status Send(const Envelope& envelope) override;
  // Waits for the next message. Unavailable: the peer is gone.
  StatusOr<Envelope> Receive();
  // Receives on its own thread until the peer is gone; then calls `on_end`.
  void Start(std::function<void(Envelope)> on_message, std::function<void()> on_end);

 private:
  UniqueFd socket_;
  std::mutex mutex_;
  std::jthread thread_;
};

}  // namespace baton
