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

// What a receiver tells its worker. Called on the receiver's thread; must not block. May call the
// receiver's methods.
class KvReceiverListener {
 public:
  virtual ~KvReceiverListener() = default;
  // `peer` offers KV: answer with Grant or Refuse, now or later, from any thread.
  virtual void OnOffer(const WorkerId& peer,
                       SessionId session,
                       Epoch epoch,
                       const Offer& offer) = 0;
  // The offer is gone before it was answered; no answer is needed.
  virtual void OnWithdrawn(SessionId session, Epoch epoch, const Status& status) = 0;
  // SEAL is all that a hand-off lacks, and will come `within` that time if all goes well. Not said
  // of every hand-off.
  virtual void OnSealDue(Duration /*within*/) {}
  // Every byte is in the granted blocks and was verified; they are the worker's alone now.
  // `payload` is what the sender gave to Seal.
  virtual void OnCommitted(SessionId session,
                           Epoch epoch,
                           const std::string& payload,
                           const TransferStats& stats) = 0;
  // The hand-off failed, and no byte can land in the granted blocks any more.
  virtual void OnReleased(SessionId session, Epoch epoch, const Status& status) = 0;
};

// Receives prompts' KV into the local arena. Thread-safe; it runs one thread that moves the data
// and calls the listener. No call blocks.
//
// After OnOffer comes the worker's Grant or Refuse, or OnWithdrawn. Every Grant gets exactly one
// of OnCommitted and OnReleased (a Grant for an offer that is gone, or with wrong blocks, gets
// OnReleased). The one exception is a hand-off whose transport cannot prove that writes have ended:
// it stays in quarantine (Stats()), its blocks must not be reused, and OnReleased comes if the
// proof ever does.
class KvReceiver final {
 public:
  // Listens on the transports' endpoints. Errors: InvalidArgument for options that do not fit
  // together, or what the transports say. `listener` outlives the receiver.
  static StatusOr<std::unique_ptr<KvReceiver>> Create(KvTransferOptions options,
                                                      KvReceiverListener& listener);
  // Closes every endpoint, so that no byte lands any more; sessions get no callback any more.
  ~KvReceiver();

  // What to answer a sender's Hello with: it carries the endpoints.
  const Hello& hello() const;

  // A sender said `theirs`; `out` takes messages to it until RemovePeer returns. A peer of that id
  // is removed first. FailedPrecondition or InvalidArgument: it cannot be a peer; nothing was
  // added.
  Status AddPeer(const WorkerId& peer, ControlStream* out, const Hello& theirs);
  // The stream is gone: its sessions end. `out` is not used after the return. Never call it from
  // within ControlStream::Send.
  void RemovePeer(const WorkerId& peer);
  // A message came from the peer. InvalidArgument or ResourceExhausted: close the stream.
  Status OnMessage(const WorkerId& peer, Envelope envelope);

  // Answers an offer. `blocks` is the whole block table of the prompt; its first `cached_blocks`
  // hold their KV already and are not written.
  void Grant(SessionId session,
             Epoch epoch,
             uint32_t cached_blocks,
             std::span<const BlockId> blocks);
  void Refuse(SessionId session, Epoch epoch, Status reason);
  // Gives the hand-off up (the request was cancelled): before the grant as Refuse, after it
  // OnReleased follows; after OnCommitted it does nothing.
  void Abort(SessionId session, Epoch epoch, Status reason);
  // Tells every peer that this worker leaves: they offer nothing new. Offers on their way still
  // come.
  void Leave(const std::string& reason);

  KvTransferStats Stats() const;

 private:
  class Impl;
  explicit KvReceiver(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace baton
