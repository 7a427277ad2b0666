#pragma once

#include <map>
#include <mutex>

#include "kvtransfer/control_stream.h"

namespace baton {

// The control streams of all peers. Thread-safe: after Remove has returned, the stream is not used.
class PeerStreams final {
 public:
  void Add(const WorkerId& peer, ControlStream* out) {
    std::lock_guard lock(mutex_);
    streams_[peer] = out;
  }
  void Remove(const WorkerId& peer) {
    std::lock_guard lock(mutex_);
    streams_.erase(peer);
  }
  // Sends the message on the peer's stream. Unavailable for an unknown peer.
  Status Send(const WorkerId& peer, const Envelope& envelope) {
    std::lock_guard lock(mutex_);
    const auto found = streams_.find(peer);
    if (found == streams_.end()) {
      return MakeStatus(StatusCode::kUnavailable, "peer {} is not connected", peer);
    }
    return found->second->Send(envelope);
  }
  // Sends to every peer; errors are ignored.
  void SendToAll(const ControlMessage& message) {
    std::lock_guard lock(mutex_);
    for (auto& [peer, stream] : streams_) (void)stream->Send({{}, {}, message});
  }

 private:
  std::mutex mutex_;
  std::map<WorkerId, ControlStream*> streams_;
};

}  // namespace baton
