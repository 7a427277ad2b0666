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

// The common state of the receiving ends of a cuda_ipc transport: which peer holds which window,
// the checksums of landed bytes, and the processes that disconnected without kBye. Such a process
// holds its windows until it has ended. Owned by the transport; its thread only.
class IpcReceiver final {
 public:
  struct Options {
    int epoll_fd = -1;
    Duration fence_timeout{};
    std::function<void(std::string_view)> log;
  };

  // `windows` and `dma` must outlive the receiver.
  IpcReceiver(WindowTable& windows, Dma& dma, std::unique_ptr<DmaQueue> queue, Options options);

  StatusOr<std::unique_ptr<PeerConnection>> Accept(UniqueFd socket, Time now);
  // Gives the window to no further peer; kClosed follows. False for an unknown key.
  bool CloseWindow(uint64_t key);
  // Handles checksums, ended processes and time-outs. True if the caller should busy-poll: bytes
  // landed a moment ago, and their checksums or further bytes are due.
  bool Poll(Time now, FrameServer& server);
  // Whether a peer may still write through a closed window.
  bool is_closing() const { return grants_.is_closing(); }

  // From the connections.
  void OnConnected(uint64_t peer, IpcConnection* connection);
  void OnGone(uint64_t peer, bool drained);
  void OnDrained(uint64_t peer, uint64_t key);
  StatusOr<std::string> ExportOf(uint32_t region) const;
  // The window that the peer may write through from now on, or null.
  const WriteWindow* Give(uint64_t peer, uint64_t key, uint32_t region);
  bool holds(uint64_t peer, uint64_t key) const { return grants_.holds(peer, key); }
  // The bytes of an operation have landed. Its acknowledgement follows, unless this call returns an
  // error.
  Status OnLanded(uint64_t peer, uint32_t region, const IpcFrame& frame);
  // Whether so many arrivals wait to be taken that no further frame may be read.
  bool is_behind() const;
  // Ignored unless the peer was given the window and the window is open.
  void OnNote(uint64_t peer, uint32_t region, const IpcFrame& frame);

 private:
  struct Peer {
    pid_t process = 0;
    UniqueFd process_fd;                  // pidfd; readable once the process has ended
    IpcConnection* connection = nullptr;  // null: closed without kBye
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
  bool has_moved_ = false;  // since the last Poll something landed, or soon will
  Time moved_{};
  std::map<uint64_t, Landed> summing_;  // by DMA id
  uint64_t next_dma_ = 1;
  std::unique_ptr<DmaQueue> queue_;
};

}  // namespace baton
