#include "kvtransfer/verbs/verbs_socket.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "kvtransfer/loop/epoll.h"

namespace baton {
namespace {

bool TakesStream(SidebandType type) {
  return type == SidebandType::kHello || type == SidebandType::kWelcome ||
         type == SidebandType::kBye;
}

}  // namespace

StatusOr<std::unique_ptr<VerbsSocket>> VerbsSocket::Create(std::unique_ptr<FrameSocket> stream) {
  BATON_ASSIGN_OR_RETURN(UniqueFd epoll, MakeEpoll());
  BATON_RETURN_IF_ERROR(WatchFd(epoll.get(), stream->fd()));
  return std::unique_ptr<VerbsSocket>(new VerbsSocket(std::move(stream), std::move(epoll)));
}

StatusOr<QueuePairAddress> VerbsSocket::OpenMessages(Rail& rail) {
  BATON_ASSIGN_OR_RETURN(messages_, MessageQueue::Create(rail));
  BATON_RETURN_IF_ERROR(WatchFd(epoll_.get(), messages_->fd()));
  return messages_->address();
}

Status VerbsSocket::ConnectMessages(const PortAddress& port,
                                    const QueuePairAddress& peer,
                                    PeerSide side) {
  return messages_->Connect(port, peer, side);
}

void VerbsSocket::Queue(const SidebandFrame& frame) {
  if (TakesStream(frame.header.type)) return stream_->Queue(frame);
  BATON_CHECK(messages_ != nullptr, "a frame before the handshake");
  out_.push_back(EncodeStreamFrame(frame));
}

Status VerbsSocket::Flush() {
  BATON_RETURN_IF_ERROR(stream_->Flush());
  BATON_RETURN_IF_ERROR(WatchStream());
  if (messages_ == nullptr) return OkStatus();
  BATON_RETURN_IF_ERROR(SendMessages());
  if (out_.empty()) return OkStatus();
  // Credits may have come. Their notification stays, because Receive must be called for the
  // payloads.
  BATON_RETURN_IF_ERROR(messages_->Receive(in_));
  return SendMessages();
}

Status VerbsSocket::WatchStream() {
  if ((stream_->waiting() > 0) == watches_write_) return OkStatus();
  watches_write_ = !watches_write_;
  const uint32_t events = EPOLLIN | (watches_write_ ? EPOLLOUT : 0u);
  return WatchFd(epoll_.get(), stream_->fd(), events, EPOLL_CTL_MOD);
}

Status VerbsSocket::SendMessages() {
  while (!out_.empty()) {
    const std::span<std::byte> payload = messages_->NextPayload();
    if (payload.empty()) return OkStatus();
    size_t filled = 0;
    while (!out_.empty() && filled < payload.size()) {
      const std::string& frame = out_.front();
      const size_t bytes = std::min(frame.size() - sent_, payload.size() - filled);
      std::memcpy(payload.data() + filled, frame.data() + sent_, bytes);
      filled += bytes;
      sent_ += bytes;
      if (sent_ < frame.size()) break;
      out_.pop_front();
      sent_ = 0;
    }
    BATON_RETURN_IF_ERROR(messages_->Send(filled));
  }
  return OkStatus();
}

StatusOr<std::optional<SidebandFrame>> VerbsSocket::ReceiveMessage() {
  while (true) {
    BATON_ASSIGN_OR_RETURN(std::optional<SidebandFrame> frame, TakeStreamFrame(in_, taken_));
    if (frame) return frame;
    in_.erase(0, std::exchange(taken_, 0));
    const size_t held = in_.size();
    BATON_RETURN_IF_ERROR(messages_->Receive(in_));
    if (in_.size() == held) {
      messages_->TakeNotifications();
      // What came before the notification was requested gives none.
      if (messages_->Watch()) BATON_RETURN_IF_ERROR(messages_->Receive(in_));
    }
    BATON_RETURN_IF_ERROR(messages_->ReturnCredits());
    BATON_RETURN_IF_ERROR(SendMessages());
    if (in_.size() == held) return frame;
  }
}

StatusOr<std::optional<SidebandFrame>> VerbsSocket::Receive() {
  std::optional<SidebandFrame> frame;
  if (messages_ != nullptr && !said_bye_) {
    BATON_ASSIGN_OR_RETURN(frame, ReceiveMessage());
  }
  if (!frame) {
    BATON_ASSIGN_OR_RETURN(frame, stream_->Receive());
    if (frame && !TakesStream(frame->header.type)) {
      return InvalidArgument(
          "a frame of type {} came over TCP; only hello, welcome and bye take it",
          static_cast<uint16_t>(frame->header.type));
    }
    said_bye_ = said_bye_ || (frame && frame->header.type == SidebandType::kBye);
    BATON_RETURN_IF_ERROR(WatchStream());
  } else if (TakesStream(frame->header.type)) {
    return InvalidArgument("a frame of type {} came over RDMA; hello, welcome and bye take TCP",
                           static_cast<uint16_t>(frame->header.type));
  }
  return frame;
}

}  // namespace baton
