#pragma once

#include <functional>
#include <memory>

#include "kvtransfer/one_sided/receiver.h"
#include "kvtransfer/wire/frame_transport.h"

namespace baton {

// The common base of the one-sided transports, in which the sender writes into the receiver's
// memory without the receiver's help. The sender keeps the windows (channel.h), so closing a window
// needs the sender's confirmation, or the proof of RemoteAccess. Contract and threads:
// kvtransfer/transport.h.
class OneSidedTransport : public FrameTransport {
 public:
  ~OneSidedTransport() override;

  TransportCaps caps() const override;
  // Also gives the window to the connected channels of its peer.
  Status OpenWindow(WriteWindow window) override;
  void CloseWindow(uint64_t window_key) override;

 protected:
  // The two plugs of an accepted peer.
  struct AcceptedPeer {
    std::unique_ptr<FrameSocket> socket;
    std::unique_ptr<RemoteAccess> access;
  };
  using Accept = std::function<StatusOr<AcceptedPeer>(UniqueFd socket)>;

  using FrameTransport::FrameTransport;
  // Starts to serve peers. `checksums` computes the checksums of the bytes that land in the
  // regions. An error of `accept` refuses the peer.
  void ServePeers(UniqueFd listener, std::unique_ptr<DmaQueue> checksums, Accept accept);
  bool ServeMore(Time now) override;
  // Waits, at most for the fence time-out, until no peer can write any more, and disconnects all.
  // The destructor of this class does that too. A subclass whose plugs or `accept` use its members
  // calls this method in its own destructor.
  void EndPeers();

 private:
  std::unique_ptr<OneSidedReceiver> receiver_;
};

}  // namespace baton
