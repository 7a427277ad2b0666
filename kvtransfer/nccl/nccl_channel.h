#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>

#include "kvtransfer/nccl/staged_pair.h"
#include "kvtransfer/sideband/sending_end.h"
#include "kvtransfer/wire/rate_meter.h"

namespace baton {

// The sending end of a channel of "nccl". A write is gathered into a staging buffer, announced in a
// kSend frame, and sent by the communicator; announcements and sends have the same order, so the
// receiver can match them. The receiver has a staging buffer for each announcement that it has not
// acknowledged, so it never waits for memory while this end waits for it. The source is free once
// it was gathered. A dead channel does not wait for its communicator's abort. Owned by the
// transport's user; its thread only.
class NcclChannel final : public Channel, private SendingEnd::Mover {
 public:
  struct Options {
    std::string peer;  // in messages
    PairDevice device;
    const Buffer* source = nullptr;
    uint32_t peer_region = 0;
    int epoll_fd = -1;  // the transport's
    Duration connect_timeout{};
    Duration stall_timeout{};
  };

  NcclChannel(std::unique_ptr<FrameSocket> socket, Options options);
  ~NcclChannel() override;

  StatusOr<OpId> PostWrite(const WriteOp& op) override;
  void RequestAbort(OpId op) override { end_.RequestAbort(op); }
  // Does nothing: the receiver closes windows without the sender.
  void Release(uint64_t /*window_key*/) override {}
  void Fence() override { end_.Fence(); }
  size_t Poll(Time now, std::span<WriteEvent> events) override;
  Status status() const override { return end_.status(); }
  bool wants_poll() const override { return wants_poll_; }
  double bytes_per_second() const override { return rate_.bytes_per_second(); }

 private:
  using Op = SendingEnd::Op;
  // An operation that is being gathered, or was gathered and has not been sent.
  struct Staged {
    uint64_t op = 0;
    int buffer = -1;  // -1: it has no payload
  };

  Status OnWelcome(const SidebandFrame& frame) override;
  Status CheckAck(uint64_t id, const Op* op) override;
  Status OnFrame(SidebandFrame frame) override;
  void StopMoving() override;
  void OnLeave() override { pair_.reset(); }

  // Starts to gather the next queued operation. False: none is queued, this end has no buffer, or
  // the channel has died.
  bool GatherNext();
  // False: there is no buffer.
  StatusOr<bool> StartGather(Op& op);
  void TakeCopies();
  // Announces and sends the operations that were gathered, in their order, as far as the receiver
  // has buffers.
  void SendGathered();
  void Announce(const Op& op, int buffer);
  void TakeExchanges(Time now);
  bool is_busy() const { return !staged_.empty() || !announced_.empty(); }

  const Options options_;
  SendingEnd end_;
  std::unique_ptr<StagedPair> pair_;  // set by kWelcome
  uint32_t peer_buffers_ = 0;
  std::deque<uint64_t> queued_;
  std::deque<Staged> staged_;
  std::unordered_set<uint64_t> announced_;  // not acknowledged
  std::deque<int> sending_;                 // the buffers of sends that have not ended
  RateMeter rate_;
  bool wants_poll_ = false;
};

}  // namespace baton
