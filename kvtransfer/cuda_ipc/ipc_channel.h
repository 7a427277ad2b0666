#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "common/base/unique_fd.h"
#include "kernels/dma.h"
#include "kvtransfer/cuda_ipc/ipc_socket.h"
#include "kvtransfer/wire/frame.h"

namespace baton {

// Sending end of a cuda_ipc channel: puts the bytes into the receiver's memory itself, and tells it
// what has landed. The receiver cannot stop a copy, so this side has three duties: it copies only
// into windows that the receiver gave it and that are not closed; it confirms a close only after
// the last copy through that window; and it says goodbye only after the last copy of all. When a
// copy's end is not known (the device is lost), it confirms nothing: the receiver then waits for
// the end of this process. Owned by the transport's user; its thread only.
class IpcChannel final : public Channel {
 public:
  struct Options {
    UniqueFd socket;
    int epoll_fd = -1;
    const Buffer* source = nullptr;
    uint32_t peer_region = 0;
    std::unique_ptr<DmaQueue> queue;
    std::function<StatusOr<std::unique_ptr<Buffer>>(std::string_view exported)> import;
    Duration connect_timeout{};
  };

  explicit IpcChannel(Options options);
  // Waits for the copies that are under way.
  ~IpcChannel() override;

  StatusOr<OpId> PostWrite(const WriteOp& op) override;
  void Start(OpId op) override;
  void RequestAbort(OpId op) override;
  void Release(uint64_t window_key) override;
  bool PostNote(uint64_t window_key, std::string_view note) override;
  void Fence() override;
  size_t Poll(Time now, std::span<WriteEvent> events) override;
  Status status() const override { return status_; }
  bool wants_poll() const override { return wants_poll_; }
  // Of the copies alone: checksums may wait long for a step that computes.
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
    // How it ends once nothing reads the source any more, when that is known already.
    std::optional<WriteEvent> verdict;
  };
  using Ops = std::map<uint64_t, Op>;
  // What is known of a window of the receiver.
  struct Window {
    bool given = false;
    bool closing = false;   // the receiver waits for our confirmation
    bool released = false;  // it gets it without asking
    std::vector<ByteRange> ranges;
    size_t copies = 0;  // under way
  };

  void ReceiveFrames();
  Status OnFrame(IpcFrame frame);
  Status OnWelcome(const IpcFrame& frame);
  Status OnWindow(const IpcFrame& frame);
  void OnClose(uint64_t key);
  Status OnAck(const IpcHeader& header);

  // Starts what waits for nothing.
  void StartQueued();
  // True when the operation is no longer queued.
  bool TryStart(Op& op);
  Status StartCopy(Op& op);
  // Asks for the source's checksums, once, if any are wanted.
  Status StartSums(Op& op);
  void TakeDone();
  void OnCopied(Op& op, const Status& status);
  void MeasureRate(Time now);
  void JudgePolling(Time now);
  void SendLanded(const Op& op);
  void OnSummed(Op& op, DmaDone done);
  // Has the operation end like this as soon as nothing reads its source.
  void EndLater(Ops::iterator op, WriteEvent::Kind kind, const Status& status);
  // Has those that `concerns` end like this.
  void EndAllLater(WriteEvent::Kind kind,
                   const Status& status,
                   const std::function<bool(const Op&)>& concerns);
  void EndIfIdle(Ops::iterator op);
  void ConfirmIfDrained(uint64_t key);
  bool IsQueued(uint64_t key) const;
  bool IsCopying() const;
  // Ends everything; what is being copied is waited for.
  void Die(const Status& reason, WriteEvent::Kind kind);
  // After the last copy of a dead channel: says goodbye and lets the peer's memory go.
  void Leave();
  void Send(const IpcFrame& frame);
  void WatchSocket();

  const int epoll_fd_;
  const Buffer& source_;
  const std::function<StatusOr<std::unique_ptr<Buffer>>(std::string_view)> import_;
  const Duration connect_timeout_;
  std::optional<IpcSocket> socket_;
  std::unique_ptr<Buffer> peer_memory_;  // after kWelcome
  std::unique_ptr<DmaQueue> queue_;
  Time connect_until_{};
  bool watches_write_ = false;
  Status status_;
  bool copies_are_lost_ = false;  // the end of one is not known
  size_t fences_ = 0;             // whose kFenced is due
  uint64_t next_op_ = 1;
  Ops ops_;
  std::deque<uint64_t> queued_;
  std::map<uint64_t, Window> windows_;
  std::deque<WriteEvent> events_;
  // Since when copies are under way; what has been copied since then.
  Time busy_since_{};
  uint64_t busy_bytes_ = 0;
  // Of all such times, the latest counting most.
  double rate_bytes_ = 0;
  double rate_seconds_ = 0;
  bool wants_poll_ = false;
  bool has_moved_ = false;  // since the last Poll: something was asked, started or ended
  Time moved_{};
};

}  // namespace baton
