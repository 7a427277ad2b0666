#pragma once

#include <map>
#include <mutex>
#include <utility>

#include "kvtransfer/control_stream.h"

namespace baton {

// The control streams of all peers. Thread-safe: after Remove has returned, the stream is not used.
class PeerStreams final {
 public:
  void Add(const WorkerId& peer, ControlStream* out) {
    std::lock_guard lock(mutex_);
    streams_[peer] = {out, 0};
  }
  void Remove(const WorkerId& peer) {
    std::lock_guard lock(mutex_);
    streams_.erase(peer);
  }
  // Numbers the message and sends it on the peer's stream. Unavailable for an unknown peer.
  Status Send(const WorkerId& peer, Envelope envelope) {
    std::lock_guard lock(mutex_);
    const auto found = streams_.find(peer);
    if (found == streams_.end()) {
      return MakeStatus(StatusCode::kUnavailable, "peer {} is not connected", peer);
    }
    return SendOn(found->second, std::move(envelope));
  }
  // Sends to every peer; errors are ignored.
  void SendToAll(const ControlMessage& message) {
    std::lock_guard lock(mutex_);
    for (auto& [peer, stream] : streams_) (void)SendOn(stream, {{}, {}, 0, message});
  }

 private:
  struct Stream {
    ControlStream* out = nullptr;
    uint64_t sequence = 0;
  };

  static Status SendOn(Stream& stream, Envelope envelope) {
    envelope.sequence = ++stream.sequence;
    return stream.out->Send(envelope);
  }

  std::mutex mutex_;
  std::map<WorkerId, Stream> streams_;
};

}  // namespace baton
