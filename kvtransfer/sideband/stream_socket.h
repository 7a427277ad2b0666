#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/peer_proof.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"
#include "kvtransfer/sideband/frame_socket.h"

namespace baton {

// Carries frames over a stream socket (EncodeStreamFrame). Before the first frame, both ends may
// prove who they are. Contract, owner and thread: FrameSocket.
class StreamSocket final : public FrameSocket {
 public:
  // Called when the peer has not proven who it is.
  using OnRefused = std::function<void(const Status&)>;

  // `socket` is non-blocking and connected, or is connecting. Without `proof`, frames follow at
  // once.
  explicit StreamSocket(UniqueFd socket,
                        std::unique_ptr<PeerProof> proof = nullptr,
                        PeerSide side = PeerSide::kListener,
                        OnRefused on_refused = {});

  int fd() const override { return socket_.get(); }
  size_t waiting() const override {
    return (proof_out_.empty() ? 0 : 1) + (is_proven() ? out_.size() : 0);
  }
  void Queue(const SidebandFrame& frame) override;
  Status Flush() override;
  StatusOr<std::optional<SidebandFrame>> Receive() override;

 private:
  bool is_proven() const { return proof_ == nullptr || proof_->done(); }
  // Sends as much of `message` from `sent_` on as fits. True: all of it.
  StatusOr<bool> SendPart(const std::string& message);
  // Handles the messages of the proof in `in_`.
  Status TakeProof();

  const UniqueFd socket_;
  const std::unique_ptr<PeerProof> proof_;
  const OnRefused on_refused_;
  std::string proof_out_;  // messages of the proof to be sent, before any frame
  std::deque<std::string> out_;
  size_t sent_ = 0;  // bytes of proof_out_, or else of out_.front()
  // What one call receives. Kept, because filling as much memory with zeros in each Receive takes
  // longer than the call.
  std::vector<char> received_;
  std::string in_;    // received bytes
  size_t taken_ = 0;  // bytes of in_ that were returned as frames
};

// The socket of a data connection that a peer has opened, or that this process opens. With
// `proofs`, both ends prove who they are before the first frame. `peer` names the peer of a
// refusal.
std::unique_ptr<FrameSocket> AcceptDataSocket(UniqueFd accepted,
                                              const std::shared_ptr<const PeerProofs>& proofs,
                                              const std::string& peer);
std::unique_ptr<FrameSocket> DialDataSocket(UniqueFd connecting, const PeerProofs* proofs);

}  // namespace baton
