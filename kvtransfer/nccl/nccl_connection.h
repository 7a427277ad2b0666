#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kvtransfer/nccl/staged_pair.h"
#include "kvtransfer/one_sided/grant_table.h"
#include "kvtransfer/sideband/frame_socket.h"
#include "kvtransfer/sideband/recent_progress.h"
#include "kvtransfer/wire/frame.h"
#include "kvtransfer/wire/peer_connection.h"
#include "kvtransfer/wire/window_table.h"

namespace baton {

// The receiving end of a channel of "nccl". It receives each announced payload into a staging
// buffer, also one that no window allows, because the sender sends it in any case. Then it copies
// the payload to its ranges, if the window is still open. So a window closes without the sender:
// only this process's own copies must end. Owned by a FrameServer; its thread only.
class NcclConnection final : public PeerConnection {
 public:
  struct Options {
    std::string peer;
    GrantTable::PeerId id = 0;  // of this connection in the table of copies
    PairDevice device;
    int epoll_fd = -1;  // the transport's
    Duration connect_timeout{};
    Duration stall_timeout{};
  };

  // `copies` records which connections copy through which windows. It and `windows` belong to the
  // transport.
  NcclConnection(std::unique_ptr<FrameSocket> socket,
                 Options options,
                 WindowTable& windows,
                 GrantTable& copies,
                 Time now);
  ~NcclConnection() override;

  Status Step(Time now, size_t quantum) override;
  // Payloads that have not been copied yet are discarded.
  void OnWindowClosed(uint64_t key) override;
  int fd() const override { return socket_->fd(); }
  const std::string& peer() const override { return options_.peer; }
  Time stalled_since() const override { return pair_ ? kNever : since_; }
  bool in_preface() const override { return pair_ == nullptr; }
  bool wants_write() const override { return socket_->waiting() > 0; }
  bool is_landing() const override { return pair_ != nullptr; }
  bool has_more() const override { return has_more_; }

 private:
  // An announced operation that has not been acknowledged.
  struct Landing {
    WriteHeader header;
    std::vector<ByteRange> ranges;  // of the payload in the KV memory
    Status verdict;
    int buffer = -1;
    bool copying = false;
  };
  using Landings = std::map<uint64_t, Landing>;

  Status ReceiveFrames(size_t quantum);
  Status OnFrame(SidebandFrame frame);
  Status OnHello(const SidebandFrame& frame);
  Status OnSend(SidebandFrame frame);
  Status TakeExchanges(Time now);
  Status StartCopy(Landing& landing);
  bool IsCopying(uint64_t key) const;
  Status TakeCopies();
  // The payload is in place. Computes its checksums, if any are wanted.
  Status OnCopied(Landings::iterator landing);
  // The end of an operation: reports its arrival if its verdict is OK, and queues the answer for
  // the next Step. So the arrival, for which the decode worker waits, is handled first.
  Status Conclude(Landings::iterator landing, std::vector<uint64_t> checksums);

  const std::unique_ptr<FrameSocket> socket_;
  const Options options_;
  WindowTable& windows_;
  GrantTable& copies_;
  const Time since_;
  uint32_t region_ = 0;
  std::unique_ptr<StagedPair> pair_;  // set by kHello
  uint64_t last_op_ = 0;
  Landings landing_;                // by operation
  std::deque<uint64_t> receiving_;  // operations whose payload has not arrived
  bool copies_are_lost_ = false;    // the end of some copy is not known
  RecentProgress progress_{std::chrono::milliseconds(2)};
  bool has_answers_ = false;  // queued since the last Step began
  bool has_more_ = false;
};

}  // namespace baton
