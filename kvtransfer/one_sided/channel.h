#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "kvtransfer/one_sided/copier.h"
#include "kvtransfer/one_sided/frame_socket.h"
#include "kvtransfer/wire/frame.h"

namespace baton {

// The sending end of a one-sided channel: moves the bytes into the receiver's memory itself, and
// reports to the receiver which copies have ended. The receiver cannot stop a copy, so the sender
// has three duties. It copies only into windows that the receiver gave it and that are not closed.
// It confirms a close only after the last copy through that window has ended. It sends kBye only
// after the last copy of all has ended. If the end of a copy cannot be known (the device is lost),
// the sender confirms nothing, and the receiver waits for the proof of its RemoteAccess. Owned by
// the transport's user; its thread only.
class OneSidedChannel final : public Channel {
 public:
  struct Options {
    std::unique_ptr<FrameSocket> socket;
    std::unique_ptr<Copier> copier;
    uint64_t source_bytes = 0;  // size of the copier's local region
    uint32_t peer_region = 0;
    int epoll_fd = -1;  // the transport's
    Duration connect_timeout{};
    bool takes_held_writes = false;  // the transport prefers bursts
  };

  explicit OneSidedChannel(Options options);
  // Waits for the copies that are under way. If they do not end within 5 s, sends no kBye.
  ~OneSidedChannel() override;

  StatusOr<OpId> PostWrite(const WriteOp& op) override;
  void Start(OpId op) override;
  void RequestAbort(OpId op) override;
  void Release(uint64_t window_key) override;
  bool PostNote(uint64_t window_key, std::string_view note) override;
  void Fence() override;
  size_t Poll(Time now, std::span<WriteEvent> events) override;
  Status status() const override { return status_; }
  bool wants_poll() const override { return wants_poll_; }
  // The rate of the copies alone: checksums may wait long behind a step's kernels.
  double bytes_per_second() const override;

 private:
  struct Op {
    WriteHeader header;
    std::vector<WriteRun> runs;
    bool held = false;
    bool sums_asked = false;
    bool started = false;
    bool copying = false;
    bool summing = false;
    bool acknowledged = false;
    uint32_t mark = 0;  // of the copy
    // How the operation ends once nothing reads its source any more, if that is known already.
    std::optional<WriteEvent> verdict;
  };
  using Ops = std::map<uint64_t, Op>;
  // The state of a window of the receiver.
  struct Window {
    bool given = false;
    bool closing = false;   // the receiver waits for our confirmation
    bool released = false;  // confirm (kDrained) without being asked
    std::vector<ByteRange> ranges;
    size_t copies = 0;  // copies under way
  };

  void ReceiveFrames();
  Status OnFrame(OneSidedFrame frame);
  Status OnWelcome(const OneSidedFrame& frame);
  Status OnWindow(const OneSidedFrame& frame);
  void OnClose(uint64_t key);
  Status OnAck(const OneSidedHeader& header);

  // Starts the queued operations that need not wait.
  void StartQueued();
  // True if the operation is no longer queued.
  bool TryStart(Op& op);
  Status StartCopy(Op& op);
  // Posts the computation of the source's checksums, once, if any are wanted.
  Status StartSums(Op& op);
  void TakeDone();
  void OnCopied(Op& op, const Status& status);
  void MeasureRate(Time now);
  void JudgePolling(Time now);
  // Reports that the operation's copy has ended.
  void SendEnd(const Op& op);
  void OnSummed(Op& op, DmaDone done);
  // Ends the operation with this event as soon as nothing reads its source.
  void EndLater(Ops::iterator op, WriteEvent::Kind kind, const Status& status);
  // As EndLater, for every operation for which `concerns` is true.
  void EndAllLater(WriteEvent::Kind kind,
                   const Status& status,
                   const std::function<bool(const Op&)>& concerns);
  void EndIfIdle(Ops::iterator op);
  void ConfirmIfDrained(uint64_t key);
  bool IsQueued(uint64_t key) const;
  bool IsCopying() const;
  // Ends every operation. An operation that is being copied ends after its copy.
  void Die(const Status& reason, WriteEvent::Kind kind);
  // Once the last operation of a dead channel has ended: sends kBye and destroys the copier.
  void Leave();
  void Send(const OneSidedFrame& frame);
  void WatchSocket();

  const int epoll_fd_;
  const uint64_t source_bytes_;
  const Duration connect_timeout_;
  const bool takes_held_writes_;
  // Both are null once the channel is dead and its last operation has ended.
  std::unique_ptr<FrameSocket> socket_;
  std::unique_ptr<Copier> copier_;
  bool is_connected_ = false;  // the peer sent kWelcome
  Time connect_until_{};
  bool watches_write_ = false;
  Status status_;
  bool copies_are_lost_ = false;  // the end of some copy is not known
  size_t fences_ = 0;             // calls of Fence whose kFenced is due
  uint64_t next_op_ = 1;
  Ops ops_;
  std::deque<uint64_t> queued_;
  std::map<uint64_t, Window> windows_;
  std::deque<WriteEvent> events_;
  // The time since which copies are under way, and the bytes copied since then.
  Time busy_since_{};
  uint64_t busy_bytes_ = 0;
  // Exponentially decaying sums over all such periods.
  double rate_bytes_ = 0;
  double rate_seconds_ = 0;
  bool wants_poll_ = false;
  bool has_moved_ = false;  // since the last Poll something was asked, started or ended
  Time moved_{};
};

}  // namespace baton
