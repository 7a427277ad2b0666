#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/dma.h"
#include "kvtransfer/one_sided/connection.h"
#include "kvtransfer/one_sided/grant_table.h"
#include "kvtransfer/one_sided/remote_access.h"
#include "kvtransfer/sideband/recent_progress.h"
#include "kvtransfer/wire/frame_server.h"
#include "kvtransfer/wire/window_table.h"

namespace baton {

// The common state of the receiving ends of a one-sided transport: which peer holds which window,
// the checksums of landed bytes, and the peers that disconnected without kBye. Such a peer holds
// its windows until its RemoteAccess is revoked. Owned by the transport; its thread only.
class OneSidedReceiver final {
 public:
  struct Options {
    int epoll_fd = -1;
    Duration fence_timeout{};
    bool busy_polls = false;  // TransportCaps
    std::function<void(std::string_view)> log;
  };

  // `windows` must outlive the receiver. `checksums` computes the checksums of landed bytes.
  OneSidedReceiver(WindowTable& windows, std::unique_ptr<DmaQueue> checksums, Options options);

  // A peer connected. Returns the receiving end of its channel, which must not outlive the
  // receiver.
  std::unique_ptr<PeerConnection> Add(std::unique_ptr<FrameSocket> socket,
                                      std::unique_ptr<RemoteAccess> access,
                                      Time now);
  // Gives the window to no further peer. kClosed follows when no peer can write through the window
  // any more and no checksum of its bytes is under way. False for an unknown key.
  bool CloseWindow(uint64_t key);
  // Handles checksums, revoked peers and time-outs. True if the caller should busy-poll: bytes
  // landed a moment ago, and their checksums or further bytes are due.
  bool Poll(Time now, FrameServer& server);
  // Whether a peer may still write through a window that closes, or a checksum of its bytes is
  // under way.
  bool is_closing() const;

  // From the connections.
  void OnConnected(uint64_t peer, OneSidedConnection* connection);
  void OnGone(uint64_t peer, bool drained);
  // Lets the peer write into the region (RemoteAccess::Open). InvalidArgument: the region is
  // unknown.
  StatusOr<std::string> OpenAccess(uint64_t peer, uint32_t region, std::string_view greeting);
  // The window that the peer may write through from now on, or null.
  const WriteWindow* Give(uint64_t peer, uint64_t key, uint32_t region);
  bool holds(uint64_t peer, uint64_t key) const { return grants_.holds(peer, key); }
  // The peer reports a copy (kLanded) or that it writes no more through a window (kDrained), or it
  // asks for a window (kAsk). Reports take effect in their order, and a copy's not before its bytes
  // are in place: a peer that gave a window back and asks for it again holds it afterwards. An
  // operation's acknowledgement follows, or the answer. An error: the peer reports more copies than
  // a channel can have.
  Status OnReport(uint64_t peer, SidebandFrame frame);
  // Whether no further frame may be read, because too many arrivals have not been taken yet.
  bool is_behind() const;
  // Ignored unless the peer was given the window and the window is open.
  void OnNote(uint64_t peer, uint32_t region, const SidebandFrame& frame);

 private:
  struct Peer {
    std::unique_ptr<RemoteAccess> access;
    OneSidedConnection* connection = nullptr;  // null: closed without kBye
    uint32_t region = 0;
    std::deque<SidebandFrame> reports;  // the first one waits for bytes to land
    bool is_watched = false;            // the access's wait_fd
  };
  struct Landed {
    uint64_t peer = 0;
    uint64_t op = 0;
    Arrival arrival;
  };

  // Handles the peer's reports up to the first one whose bytes are not in place yet.
  void TakeReports(uint64_t id, Peer& peer);
  Status OnLanded(uint64_t id,
                  const Peer& peer,
                  const SidebandHeader& header,
                  std::vector<ByteRange> ranges);
  void WatchAccess(Peer& peer) const;
  void Count(Landed landed, const Status& status);
  void TakeChecksums();
  void TakeRevoked();
  // Revokes the access of peers that did not confirm a close within the fence time-out.
  void RevokeOverdue(Time now, FrameServer& server);
  // Whether a checksum of bytes that landed through the window is under way.
  bool IsSummed(uint64_t key) const;
  // Reports each closed window once no checksum reads its bytes any more, because its blocks then
  // go to other sessions.
  void ReportClosed();

  WindowTable& windows_;
  const Options options_;
  GrantTable grants_;
  std::map<uint64_t, Peer> peers_;
  uint64_t next_peer_ = 1;
  // Something landed, or soon will. The copies of one operation take a tenth of this time.
  RecentProgress progress_{std::chrono::milliseconds(1)};
  std::map<uint64_t, Landed> summing_;  // by id of `checksums_`
  std::vector<Arrival> closed_;         // kClosed that wait for checksums
  uint64_t next_sum_ = 1;
  std::unique_ptr<DmaQueue> checksums_;
};

}  // namespace baton
