#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/peer_proof.h"
#include "kvtransfer/verbs/queue_pair.h"

namespace baton {

// Messages in both directions and in order, over a queue pair of their own (RDMA SEND). Each end
// has a fixed number of receive requests, which are the credits of its peer: an end without credits
// does not send, so neither device ever waits for a receive request. Each message gives credits
// back; the last credit is kept for a message that does nothing else. Its order relative to the
// writes of other queue pairs is not defined. Owned by one end of a channel; its thread only.
class MessageQueue final {
 public:
  static constexpr uint32_t kSlots = 16;  // of each direction; the protocol's first credits
  static constexpr size_t kSlotBytes = 4096;
  // What each message begins with, little-endian.
  struct Header {
    uint32_t credits = 0;  // given back
  };
  static constexpr size_t kMaxPayload = kSlotBytes - sizeof(Header);

  // Can receive at once, but the peer can send only after Connect.
  static StatusOr<std::unique_ptr<MessageQueue>> Create(Rail& rail);

  QueuePairAddress address() const { return queue_pair_->address(); }
  // Connects to the queue of the peer. The dialler connects last and sends an empty message. The
  // listener sends nothing before that, because the dialler's device would not take it yet.
  Status Connect(const PortAddress& port, const QueuePairAddress& peer, PeerSide side);

  // The place for the payload of the next message. Empty while none may be sent: the peer is not
  // connected or has given back too few credits, or the device has not sent enough of the earlier
  // messages.
  std::span<std::byte> NextPayload();
  // Sends a message with the first `bytes` bytes of NextPayload. An error: the queue is broken.
  Status Send(size_t bytes);

  // Appends the payloads that have arrived to `stream`, at most those of all credits. Unavailable:
  // the queue is broken; InvalidArgument: the peer sent something that is not a message.
  Status Receive(std::string& stream);
  // The received payloads have been used, so the peer gets their credits back.
  Status ReturnCredits();

  // Becomes readable when Receive may have a payload, but only after Watch. Constant.
  int fd() const { return completions_->fd(); }
  // Makes fd() readable when the next message comes. True: messages that came before need a Receive
  // afterwards.
  bool Watch() { return completions_->Arm(); }
  // Makes fd() unreadable until the next notification.
  void TakeNotifications() { completions_->TakeNotifications(); }

 private:
  explicit MessageQueue(Rail& rail) : rail_(rail), memory_(2 * size_t{kSlots} * kSlotBytes) {}
  Status Open();
  std::span<std::byte> Slot(uint32_t index) {
    return std::span(memory_).subspan(size_t{index} * kSlotBytes, kSlotBytes);
  }
  ibv_sge SourceOf(uint32_t slot, size_t bytes);
  bool has_send_slot() const { return sent_ - completed_ < kSlots; }
  Status PostReceive(uint32_t slot);
  Status OnMessage(const ibv_wc& completion, std::string& stream);

  Rail& rail_;
  std::vector<std::byte> memory_;  // slots for receiving, then slots for sending
  MemoryRegion region_;
  std::unique_ptr<CompletionQueue> completions_;
  std::unique_ptr<QueuePair> queue_pair_;
  bool may_send_ = false;   // the peer is connected, too
  uint64_t sent_ = 0;       // messages
  uint64_t completed_ = 0;  // of them, known to have left their slots
  uint32_t credits_ = kSlots;
  uint32_t used_ = 0;      // received messages whose payload was not used yet
  uint32_t returned_ = 0;  // received messages whose credits go back with the next message
};

}  // namespace baton
