#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kvtransfer/control_stream.h"
#include "kvtransfer/messages.h"
#include "kvtransfer/options.h"
#include "kvtransfer/transfer_stats.h"

namespace baton {

// A prompt whose KV is to be handed to `peer`.
struct OfferRequest {
  SessionId session;
  Epoch epoch;
  WorkerId peer;
  uint32_t total_tokens = 0;
  std::vector<Hash128> block_hashes;  // may be empty
  Duration timeout{};                 // of the whole hand-off, from now
};

// What a sender tells its worker. Called on the sender's thread; must not block. May call the
// sender's methods.
class KvSenderListener {
 public:
  virtual ~KvSenderListener() = default;
  // The peer has reserved blocks, of which it holds the first `cached_blocks` already.
  virtual void OnGranted(SessionId session, Epoch epoch, uint32_t cached_blocks) = 0;
  // The peer did not take the offer, or could not be asked. The session is parked: what ChunkReady
  // and Seal said is kept. Offer it to another peer, or Abort it.
  virtual void OnRefused(SessionId session, Epoch epoch, const Status& status) = 0;
  // Seal is all that a hand-off lacks, and is meant to come `within` that time. Not said of every
  // hand-off.
  virtual void OnSealDue(Duration /*within*/) {}
  // The session is over, and nobody reads its source blocks any more. OK: the receiver committed.
  virtual void OnFinished(SessionId session,
                          Epoch epoch,
                          const Status& status,
                          const TransferStats& stats) = 0;
};

// Sends prompts' KV from the local arena to decode workers. Thread-safe; it runs one thread that
// moves the data and calls the listener. No call blocks.
//
// Every session that was offered gets exactly one OnFinished (before which any number of OnGranted
// and OnRefused), however its peer, its stream or its worker fare. The one exception is a session
// whose transport cannot prove that its reads ended: it stays in quarantine (Stats()), its blocks
// must not be reused, and OnFinished comes if the proof ever does. (session, epoch) may be offered
// to another peer after OnRefused; to the same peer only with a new epoch.
class KvSender final {
 public:
  // Errors: InvalidArgument for options that do not fit together, or what the transports say of
  // the arenas. `listener` outlives the sender.
  static StatusOr<std::unique_ptr<KvSender>> Create(KvTransferOptions options,
                                                    KvSenderListener& listener);
  // Fences every channel; sessions under way get no callback any more.
  ~KvSender();

  // What to send first on a stream to a receiver.
  const Hello& hello() const;

  // The peer answered with `theirs`; `out` takes messages to it until RemovePeer returns. A peer
  // of that id is removed first. FailedPrecondition or InvalidArgument: it cannot be a peer
  // (another model, layout, version, or `require_transport` does not reach it); nothing was added.
  Status AddPeer(const WorkerId& peer, ControlStream* out, const Hello& theirs);
  // The stream is gone: its sessions end. `out` is not used after the return. Never call it from
  // within ControlStream::Send.
  void RemovePeer(const WorkerId& peer);
  // A message came from the peer. InvalidArgument or ResourceExhausted: close the stream.
  Status OnMessage(const WorkerId& peer, Envelope envelope);

  // Opens a session, or offers a refused one again. An unknown peer comes as OnRefused; bad
  // arguments and a full sender end a new session at once, in OnFinished. A session that is under
  // way is left alone.
  void Offer(OfferRequest request);
  // Blocks [first_index, first_index + blocks.size()) of the prompt are final and may be sent, in
  // any order, before or after the grant.
  void ChunkReady(SessionId session,
                  Epoch epoch,
                  uint32_t first_index,
                  std::span<const BlockId> blocks);
  // As ChunkReady, of layers [0, layers) alone: ChunkReady follows for the same blocks. So the
  // first layers of a long chunk travel while its last ones are computed.
  void LayersReady(SessionId session,
                   Epoch epoch,
                   uint32_t first_index,
                   std::span<const BlockId> blocks,
                   int32_t layers);
  // Nothing but what ChunkReady named follows; `payload` goes to the receiver's OnCommitted.
  void Seal(SessionId session, Epoch epoch, std::string payload);
  // Ends the session at whatever point it is; OnFinished follows unless it already came.
  void Abort(SessionId session, Epoch epoch, Status reason);

  KvTransferStats Stats() const;

 private:
  class Impl;
  explicit KvSender(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace baton
