#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "kvtransfer/control_stream.h"
#include "kvtransfer/messages/messages.h"
#include "kvtransfer/options.h"
#include "kvtransfer/transfer_stats.h"

namespace baton {

// A prompt whose KV is to be handed off to `peer`.
struct OfferRequest {
  SessionId session;
  Epoch epoch;
  WorkerId peer;
  uint32_t total_tokens = 0;
  Duration timeout{};  // of the whole hand-off, counted from now
};

// Callbacks of a sender to its worker. They run on the sender's thread, must not block, and may
// call the sender's methods.
class KvSenderListener {
 public:
  virtual ~KvSenderListener() = default;
  // The peer refused the offer, or could not be reached. The session is parked: the sender keeps
  // what ChunkReady and Seal passed. Offer the session to another peer, or Abort it.
  virtual void OnRefused(SessionId session, Epoch epoch, const Status& status) = 0;
  // The peer has granted blocks for the KV.
  virtual void OnGranted(SessionId, Epoch) {}
  // The hand-off lacks only Seal, which is expected `within` that time. Not called for every
  // hand-off.
  virtual void OnSealDue(Duration /*within*/) {}
  // The session is over, and nothing reads its source blocks any more. OK: the receiver committed.
  virtual void OnFinished(SessionId session,
                          Epoch epoch,
                          const Status& status,
                          const TransferStats& stats) = 0;
};

// Sends the KV of prompts from the local arena to decode workers. Thread-safe. Runs one thread that
// moves the data and calls the listener. No call blocks.
//
// Every offered session gets exactly one OnFinished, whatever happens to its peer, its stream or
// its worker; any number of OnRefused may come before it. The one exception is a
// session whose transport cannot prove that its reads have ended: it stays in quarantine (Stats()),
// its blocks must not be reused, and OnFinished comes if the proof comes later. After OnRefused the
// same (session, epoch) may be offered to another peer; an offer to the same peer needs a new
// epoch.
class KvSender final {
 public:
  // Errors: InvalidArgument for inconsistent options, or the transports' errors when they register
  // the arenas. `listener` must outlive the sender.
  static StatusOr<std::unique_ptr<KvSender>> Create(KvTransferOptions options,
                                                    KvSenderListener& listener);
  // Fences every channel. Sessions under way get no further callback.
  ~KvSender();

  // The first message to send on a stream to a receiver.
  const Hello& hello() const;

  // Adds a peer that answered with the HELLO `theirs`. The sender sends messages to `out` until
  // RemovePeer returns. An existing peer of that id is removed first. FailedPrecondition or
  // InvalidArgument: the worker cannot be a peer (another model, layout or version, or
  // `require_transport` does not reach it); nothing was added.
  Status AddPeer(const WorkerId& peer, ControlStream* out, const Hello& theirs);
  // The stream to the peer is closed: its sessions end. `out` is not used after the return. Must
  // not be called from within ControlStream::Send.
  void RemovePeer(const WorkerId& peer);
  // Passes on a message of the peer. After InvalidArgument or ResourceExhausted close the stream.
  Status OnMessage(const WorkerId& peer, Envelope envelope);

  // Opens a session, or offers a refused session again. An unknown peer is reported by OnRefused.
  // Invalid arguments, or too many sessions, end a new session at once by OnFinished. Does nothing
  // for a session that is under way.
  void Offer(OfferRequest request);
  // Blocks first_index, first_index + 1, … of the prompt are final and may be sent. `blocks` has
  // one entry per block of tokens and cache group of blocks of tokens, cache group by cache group
  // for each block of tokens. Entries of blocks that are not owed (OwedBlocks) are not read.
  // `state` are the blocks of the state after the prompt (StateBlocks). They must come with the
  // last block of the prompt if the layout has states; else `state` is empty. Calls may come in any
  // order, before or after the grant.
  void ChunkReady(SessionId session,
                  Epoch epoch,
                  uint32_t first_index,
                  std::span<const BlockId> blocks,
                  std::span<const BlockId> state = {});
  // As ChunkReady, but only layers [0, layers) are final, also of the state. ChunkReady must follow
  // for the same blocks. The first layers of a long chunk are thereby sent while its last layers
  // are computed.
  void LayersReady(SessionId session,
                   Epoch epoch,
                   uint32_t first_index,
                   std::span<const BlockId> blocks,
                   int32_t layers,
                   std::span<const BlockId> state = {});
  // Completes the prompt: every block must have been passed to ChunkReady. `payload` is delivered
  // to the receiver's OnCommitted. The hand-off is given up with Unavailable when its outstanding
  // writes are expected to take longer than `patience` (LinkWatch), or than its time-out allows.
  // Duration::max(): only when it times out.
  void Seal(SessionId session,
            Epoch epoch,
            std::string payload,
            Duration patience = Duration::max());
  // Ends the session in any state. OnFinished follows, unless it has already come.
  void Abort(SessionId session, Epoch epoch, Status reason);

  KvTransferStats Stats() const;

 private:
  class Impl;
  explicit KvSender(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace baton
