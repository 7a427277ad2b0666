#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/unique_fd.h"
#include "kernels/dma.h"
#include "kvtransfer/cuda_ipc/grant_table.h"
#include "kvtransfer/cuda_ipc/ipc_connection.h"
#include "kvtransfer/wire/frame_server.h"
#include "kvtransfer/wire/window_table.h"

namespace baton {

// What the receiving ends of a cuda_ipc transport share: who holds which window, the checksums of
// what landed, and the processes that went without a word, which hold their windows until they
// are reaped. Owned by the transport; its thread only.
class IpcReceiver final {
 public:
  struct Options {
    int epoll_fd = -1;
    Duration fence_timeout{};
    std::function<void(std::string_view)> log;
  };

  // The table and `dma` outlive it.
  IpcReceiver(WindowTable& windows, Dma& dma, std::unique_ptr<DmaQueue> queue, Options options);

  StatusOr<std::unique_ptr<PeerConnection>> Accept(UniqueFd socket, Time now);
  // Lets nothing more be granted through the window; kClosed follows. False for an unknown key.
  bool CloseWindow(uint64_t key);
  // Takes in checksums, ended processes and time-outs. True when it is best called again at once:
  // bytes came a moment ago, whose checksums and successors are due.
  bool Poll(Time now, FrameServer& server);
  // Whether a closed window may still be written through.
  bool is_closing() const { return grants_.is_closing(); }

  // From the connections.
  void OnConnected(uint64_t peer, IpcConnection* connection);
  void OnGone(uint64_t peer, bool drained);
  void OnDrained(uint64_t peer, uint64_t key);
  StatusOr<std::string> ExportOf(uint32_t region) const;
  // The window that the peer may write through from now on, or null.
  const WriteWindow* Give(uint64_t peer, uint64_t key, uint32_t region);
  bool holds(uint64_t peer, uint64_t key) const { return grants_.holds(peer, key); }
  // An operation's bytes are there. Its acknowledgement follows, unless it is refused at once.
  Status OnLanded(uint64_t peer, uint32_t region, const IpcFrame& frame);
  // So much has come that nobody has taken yet that no more may be read.
  bool is_behind() const;
  // Counts for windows that the peer was given.
  void OnNote(uint64_t peer, uint32_t region, const IpcFrame& frame);

 private:
  struct Peer {
    pid_t process = 0;
    UniqueFd process_fd;                  // readable once it has ended
    IpcConnection* connection = nullptr;  // null: gone without a word
  };
  struct Landed {
    uint64_t peer = 0;
    uint64_t op = 0;
    Arrival arrival;
  };

  void Count(Landed landed, const Status& status);
  void TakeChecksums(FrameServer& server);
  void TakeEndedProcesses();
  void ReportClosed();

  WindowTable& windows_;
  Dma& dma_;
  const Options options_;
  GrantTable grants_;
  std::map<uint64_t, Peer> peers_;
  uint64_t next_peer_ = 1;
  bool has_moved_ = false;  // since the last Poll: something landed, or soon will
  Time moved_{};
  std::map<uint64_t, Landed> summing_;  // by DMA id
  uint64_t next_dma_ = 1;
  std::unique_ptr<DmaQueue> queue_;
};

}  // namespace baton
