#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "kvtransfer/sideband/frame_socket.h"
#include "kvtransfer/sideband/recent_progress.h"
#include "kvtransfer/transport.h"
#include "kvtransfer/wire/frame.h"

namespace baton {

// The sending end of a channel whose payload does not take the way of its frames, without the part
// that moves the payload: the connection, the operations, and how each of them ends. An accepted
// operation ends once its end is decided (acknowledged, refused, aborted, the channel is dead) and
// nothing reads its source any more. Owned by the channel; its thread only.
class SendingEnd final {
 public:
  // An operation that has been accepted and has not ended.
  struct Op {
    WriteHeader header;
    std::vector<WriteRun> runs;
    std::vector<ByteRange> destinations;  // of the runs
    bool held = false;
    bool moving = false;   // its source is being read to move its bytes
    bool summing = false;  // its source is being read for its checksums
    bool kept = false;     // the channel needs it, also after its end was decided, while it lives
    bool acknowledged = false;
    // How it ends once nothing reads its source any more, if that is known already.
    std::optional<WriteEvent> verdict;

    // Used by the channel alone.
    bool sums_asked = false;
    bool started = false;
    uint32_t mark = 0;  // of the copy (Copier::Copy)
  };
  using Ops = std::map<uint64_t, Op>;

  // The part of the channel that moves payloads. An error of a method kills the channel.
  class Mover {
   public:
    // The receiver's answer to Greet. Called once.
    virtual Status OnWelcome(const SidebandFrame& frame) = 0;
    // The receiver acknowledges or refuses an operation, which is null if it has ended. An error:
    // the receiver may not do that at this point.
    virtual Status CheckAck(uint64_t id, const Op* op) = 0;
    // Any other frame.
    virtual Status OnFrame(SidebandFrame frame) = 0;
    // The channel has just died: no further byte may begin to move.
    virtual void StopMoving() = 0;
    // The last operation of a dead channel has ended, and the connection is about to be closed.
    virtual void OnLeave() = 0;

   protected:
    ~Mover() = default;
  };

  struct Options {
    std::unique_ptr<FrameSocket> socket;
    int epoll_fd = -1;          // the transport's
    uint64_t source_bytes = 0;  // size of the local region
    uint64_t max_op_bytes = kMaxOpBytes;
    Duration connect_timeout{};
    bool takes_held_writes = false;  // the transport prefers bursts
  };

  // `mover` must outlive the object, which calls it only from within its own methods.
  SendingEnd(Mover& mover, Options options);

  // Sends kHello: this worker wants to write a region of the peer. Called once, before all other
  // methods.
  void Greet(BootId boot, uint32_t peer_region, std::string text);
  // Channel::PostWrite: checks the write and numbers it. The caller starts it when it can.
  StatusOr<OpId> Accept(const WriteOp& op);

  // Null: there is no such operation, or it has ended.
  Op* Find(uint64_t id);
  const Ops& ops() const { return ops_; }
  uint64_t last_op() const { return next_op_ - 1; }
  // OK, or the reason why the channel is dead.
  const Status& status() const { return status_; }
  bool is_connected() const { return is_connected_; }

  // Ends the operation with this event as soon as nothing reads its source. An end that was decided
  // earlier stays. The operation may be gone after the return.
  void EndLater(uint64_t id, WriteEvent::Kind kind, const Status& status);
  // As EndLater, for every operation for which `concerns` is true.
  void EndAllLater(WriteEvent::Kind kind,
                   const Status& status,
                   const std::function<bool(const Op&)>& concerns);
  // Ends the operation if its end is decided and nothing reads its source. To be called when
  // `moving`, `summing` or `kept` has become false.
  void EndIfIdle(uint64_t id);
  // Reports the checksums of the operation's source.
  void ReportChecksums(uint64_t id, std::vector<uint64_t> checksums);
  // Channel::RequestAbort and Channel::Fence.
  void RequestAbort(OpId op);
  void Fence();
  // Ends every operation, each as soon as nothing reads its source, and takes no further ones.
  void Die(const Status& reason, WriteEvent::Kind kind);
  // Forgets all operations of a dead channel without events, and leaves.
  void Abandon();

  // The steps of Channel::Poll: handles frames and the time-out of connecting; sends queued frames;
  // leaves if the channel is dead and idle, and moves events into `events`.
  void Receive(Time now);
  void Flush();
  // Whether Finish has events.
  bool has_events() const { return !events_.empty(); }
  size_t Finish(std::span<WriteEvent> events);

  // Sends the frame, after those that wait; ignored if the channel is dead. A failure kills the
  // channel.
  void Send(const SidebandFrame& frame);
  // As Send, but the frame waits for the next Send or Flush.
  void Queue(const SidebandFrame& frame);
  bool has_queued() const { return has_queued_; }
  // In Mover::OnLeave: sends a last frame, if the connection still takes it.
  void SendLast(const SidebandFrame& frame) { (void)socket_->Send(frame); }

  // Something was asked, started or ended.
  void OnProgress() { progress_.OnProgress(); }
  // Whether the channel is alive and the last progress is so recent that busy-polling pays.
  bool MovedLately(Time now);

 private:
  void ReceiveFrames();
  Status OnFrame(SidebandFrame frame);
  Status OnAck(const SidebandHeader& header);
  void LeaveIfIdle();
  void WatchSocket();

  Mover& mover_;
  const uint64_t source_bytes_;
  const uint64_t max_op_bytes_;
  const Duration connect_timeout_;
  const int epoll_fd_;
  const bool takes_held_writes_;
  bool is_connected_ = false;  // the peer sent kWelcome
  bool watches_write_ = false;
  bool has_queued_ = false;              // since the last Flush
  std::unique_ptr<FrameSocket> socket_;  // null once the channel is dead and has no operation
  Time connect_until_{};
  Status status_;
  size_t fences_ = 0;  // calls of Fence whose kFenced is due
  uint64_t next_op_ = 1;
  Ops ops_;
  std::deque<WriteEvent> events_;
  // A peer that has not answered by then will not answer soon.
  RecentProgress progress_{std::chrono::milliseconds(2)};
};

}  // namespace baton
