#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "kvtransfer/one_sided/copier.h"
#include "kvtransfer/sideband/sending_end.h"
#include "kvtransfer/wire/rate_meter.h"

namespace baton {

// The sending end of a one-sided channel: moves the bytes into the receiver's memory itself, and
// reports the copies to the receiver: when they start if the receiver can tell when they have
// landed (Copier::marks_copies), else when they have ended. A report waits until the caller has
// handled the events of its Poll, so that the last report, SEAL and the end of the window are one
// message. The receiver cannot stop a copy, so the sender has three duties. It copies only into
// windows that the receiver gave it and that are not closed. It confirms a close only after the
// last copy through that window was reported. It sends kBye only after the last copy of all has
// ended. If the end of a copy cannot be known (the device is lost), the sender confirms nothing,
// and the receiver waits for the proof of its RemoteAccess. Owned by the transport's user; its
// thread only.
class OneSidedChannel final : public Channel, private SendingEnd::Mover {
 public:
  struct Options {
    std::unique_ptr<FrameSocket> socket;
    std::unique_ptr<Copier> copier;
    BootId boot;                // TransportOptions::boot
    uint64_t source_bytes = 0;  // size of the copier's local region
    uint32_t peer_region = 0;
    int epoll_fd = -1;  // the transport's
    Duration connect_timeout{};
    bool takes_held_writes = false;  // the transport prefers bursts
    bool busy_polls = false;         // TransportCaps
  };

  explicit OneSidedChannel(Options options);
  // Waits for the copies that are under way. If they do not end within 5 s, sends no kBye.
  ~OneSidedChannel() override;

  StatusOr<OpId> PostWrite(const WriteOp& op) override;
  void Start(OpId op) override;
  void RequestAbort(OpId op) override { end_.RequestAbort(op); }
  void Release(uint64_t window_key) override;
  bool PostNote(uint64_t window_key, std::string_view note) override;
  void Fence() override { end_.Fence(); }
  size_t Poll(Time now, std::span<WriteEvent> events) override;
  Status status() const override { return end_.status(); }
  bool wants_poll() const override { return wants_poll_ || end_.has_queued(); }
  // The rate of the copies alone: checksums may wait long behind a step's kernels.
  double bytes_per_second() const override { return rate_.bytes_per_second(); }

 private:
  using Op = SendingEnd::Op;
  // The state of a window of the receiver that this end has, or asks for.
  struct Window {
    bool asked = false;
    bool given = false;
    bool closing = false;   // the receiver waits for our confirmation
    bool released = false;  // confirm (kDrained) without being asked
    std::vector<ByteRange> ranges;
    size_t copies = 0;  // copies under way that are not reported yet
  };

  Status OnWelcome(const SidebandFrame& frame) override;
  Status CheckAck(uint64_t id, const Op* op) override;
  Status OnFrame(SidebandFrame frame) override;
  void StopMoving() override { copier_->Fence(); }
  // Sends kBye and destroys the copier.
  void OnLeave() override;

  // The receiver gives a window that was asked for, or that has just opened for this worker.
  Status OnWindow(const SidebandFrame& frame);
  // Whether the windows of the channel are as many as one receiver may give.
  bool HasTooManyWindows() const;
  void OnClose(uint64_t key);

  // Starts the queued operations that need not wait.
  void StartQueued();
  // True if the operation is no longer queued.
  bool TryStart(Op& op);
  Status StartCopy(Op& op);
  // Posts the computation of the source's checksums, once, if any are wanted.
  Status StartSums(Op& op);
  void TakeDone();
  void OnCopied(Op& op, const Status& status);
  void OnSummed(Op& op, DmaDone done);
  void JudgePolling(Time now);
  // Whether the receiver was told of the operation's copy, so that it acknowledges or refuses it.
  bool IsReported(const Op& op) const;
  // Reports the operation's copy.
  void SendLanded(const Op& op);
  void ConfirmIfDrained(uint64_t key);
  bool IsQueued(uint64_t key) const;

  std::unique_ptr<Copier> copier_;  // null once the channel is dead and its last operation ended
  SendingEnd end_;
  bool copies_are_lost_ = false;  // the end of some copy is not known
  size_t copies_ = 0;             // under way
  std::deque<uint64_t> queued_;
  std::map<uint64_t, Window> windows_;
  RateMeter rate_;
  const bool busy_polls_;
  bool wants_poll_ = false;
};

}  // namespace baton
