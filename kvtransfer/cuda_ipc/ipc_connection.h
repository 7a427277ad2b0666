#pragma once

#include <string>

#include "common/base/unique_fd.h"
#include "kvtransfer/cuda_ipc/ipc_socket.h"
#include "kvtransfer/wire/peer_connection.h"

namespace baton {

class IpcReceiver;

// Receiving end of one cuda_ipc channel: hands out the region's memory and the windows into it, and
// counts what landed. Owned by a FrameServer; its thread only.
class IpcConnection final : public PeerConnection {
 public:
  // `id` names the peer in the receiver's tables. The receiver outlives it.
  IpcConnection(UniqueFd socket, std::string peer, uint64_t id, IpcReceiver& receiver, Time now);
  // Leaves it to the receiver to find out when the peer can no longer write.
  ~IpcConnection() override;

  Status Step(Time now, size_t quantum) override;
  // Asks the peer to write no more, if it was given the window.
  void OnWindowClosed(uint64_t key) override;
  int fd() const override { return socket_.fd(); }
  const std::string& peer() const override { return peer_; }
  Time stalled_since() const override { return greeted_ ? kNever : since_; }
  bool in_preface() const override { return !greeted_; }
  bool wants_write() const override { return socket_.waiting() > 0; }
  bool has_more() const override { return has_more_; }

  // Tells the peer what became of an operation.
  void Acknowledge(uint64_t op, const Status& status);

 private:
  Status OnFrame(const IpcFrame& frame);
  Status OnHello(const IpcFrame& frame);
  Status OnAsk(const IpcFrame& frame);
  Status OnLanded(const IpcFrame& frame);

  IpcSocket socket_;
  const std::string peer_;
  const uint64_t id_;
  IpcReceiver& receiver_;
  const Time since_;
  bool greeted_ = false;
  bool said_bye_ = false;
  bool has_more_ = false;
  uint32_t region_ = 0;
  Status broken_;  // of a send outside of Step
};

}  // namespace baton
