#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/base/unique_fd.h"
#include "kvtransfer/sideband/frame_socket.h"
#include "kvtransfer/verbs/message_queue.h"

namespace baton {

// Carries the frames of a verbs channel. kHello, kWelcome and kBye take a TCP connection, before
// whose first frame the peers prove who they are, and whose end shows that a peer is gone. All
// other frames are a stream over a MessageQueue. Contract, owner and thread: FrameSocket.
class VerbsSocket final : public FrameSocket {
 public:
  // `stream`: the TCP connection.
  static StatusOr<std::unique_ptr<VerbsSocket>> Create(std::unique_ptr<FrameSocket> stream);

  // The handshake's part: OpenMessages creates this end's queue and returns its address;
  // ConnectMessages connects it to the peer's. Each is called once, before the first frame that
  // takes the queue.
  StatusOr<QueuePairAddress> OpenMessages(Rail& rail);
  Status ConnectMessages(const PortAddress& port, const QueuePairAddress& peer, PeerSide side);

  int fd() const override { return epoll_.get(); }
  size_t waiting() const override { return stream_->waiting() + out_.size(); }
  void Queue(const SidebandFrame& frame) override;
  Status Flush() override;
  StatusOr<std::optional<SidebandFrame>> Receive() override;

 private:
  VerbsSocket(std::unique_ptr<FrameSocket> stream, UniqueFd epoll)
      : stream_(std::move(stream)), epoll_(std::move(epoll)) {}
  // Lets epoll report when the TCP connection takes more bytes, if some are waiting.
  Status WatchStream();
  // Sends messages until the queue is empty or no further message may be sent.
  Status SendMessages();
  // The next frame of the messages that have arrived, or nothing.
  StatusOr<std::optional<SidebandFrame>> ReceiveMessage();

  const std::unique_ptr<FrameSocket> stream_;
  const UniqueFd epoll_;  // watches the TCP connection and the messages
  std::unique_ptr<MessageQueue> messages_;
  bool watches_write_ = false;
  bool said_bye_ = false;  // the peer
  std::deque<std::string> out_;
  size_t sent_ = 0;   // bytes of out_.front()
  std::string in_;    // payloads of messages
  size_t taken_ = 0;  // bytes of in_ that were returned as frames
};

}  // namespace baton
