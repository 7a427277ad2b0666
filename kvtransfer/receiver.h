#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kvtransfer/control_stream.h"
#include "kvtransfer/messages/messages.h"
#include "kvtransfer/options.h"
#include "kvtransfer/transfer_stats.h"

namespace baton {

// Callbacks of a receiver to its worker. They run on the receiver's thread, must not block, and may
// call the receiver's methods.
class KvReceiverListener {
 public:
  virtual ~KvReceiverListener() = default;
  // `peer` offers KV. Answer with Grant or Refuse, now or later, from any thread.
  virtual void OnOffer(const WorkerId& peer,
                       SessionId session,
                       Epoch epoch,
                       const Offer& offer) = 0;
  // The offer was withdrawn before it was answered. It needs no answer.
  virtual void OnWithdrawn(SessionId session, Epoch epoch, const Status& status) = 0;
  // The hand-off lacks only SEAL, which is expected `within` that time. Not called for every
  // hand-off.
  virtual void OnSealDue(Duration /*within*/) {}
  // Every byte is in the granted blocks and was verified. No peer can write the blocks any more.
  // `payload` is what the sender passed to Seal.
  virtual void OnCommitted(SessionId session,
                           Epoch epoch,
                           const std::string& payload,
                           const TransferStats& stats) = 0;
  // The hand-off failed, and no byte can land in the granted blocks any more.
  virtual void OnReleased(SessionId session, Epoch epoch, const Status& status) = 0;
};

// Receives the KV of prompts into the local arena. Thread-safe. Runs one thread that moves the data
// and calls the listener. No call blocks.
//
// OnOffer is followed by the worker's Grant or Refuse, or by OnWithdrawn. Every Grant gets exactly
// one of OnCommitted and OnReleased (OnReleased if the offer was withdrawn or the blocks are
// invalid), with two exceptions. A Grant of a session whose earlier Grant took effect is logged and
// ignored: nothing is written into its blocks, and no callback follows for it. A hand-off whose
// transport cannot prove that writes have ended stays in quarantine (Stats()): its blocks must not
// be reused, and OnReleased comes if the proof comes later.
class KvReceiver final {
 public:
  // Listens on the transports' endpoints. Errors: InvalidArgument for inconsistent options, or the
  // transports' errors. `listener` must outlive the receiver.
  static StatusOr<std::unique_ptr<KvReceiver>> Create(KvTransferOptions options,
                                                      KvReceiverListener& listener);
  // Closes every endpoint, so that no byte lands any more. Sessions get no further callback.
  ~KvReceiver();

  // The answer to a sender's HELLO. It carries the endpoints.
  const Hello& hello() const;

  // Adds a sender whose HELLO is `theirs`. The receiver sends messages to `out` until RemovePeer
  // returns. An existing peer of that id is removed first. FailedPrecondition or InvalidArgument:
  // the worker cannot be a peer; nothing was added.
  Status AddPeer(const WorkerId& peer, ControlStream* out, const Hello& theirs);
  // The stream to the peer is closed: its sessions end. `out` is not used after the return. Must
  // not be called from within ControlStream::Send.
  void RemovePeer(const WorkerId& peer);
  // Passes on a message of the peer. After InvalidArgument or ResourceExhausted close the stream.
  Status OnMessage(const WorkerId& peer, Envelope envelope);

  // Accepts an offer. `blocks` is the block table of the prompt, with one entry per block of tokens
  // and cache group of blocks of tokens: blocks[i · groups + g]. Entries of blocks that are not
  // owed (OwedBlocks) are not read. The first `cached_blocks` blocks of tokens already hold their
  // KV and are not written. `state` are the blocks of the state after the prompt (StateBlocks); it
  // may be empty if all blocks are cached.
  void Grant(SessionId session,
             Epoch epoch,
             uint32_t cached_blocks,
             std::span<const BlockId> blocks,
             std::span<const BlockId> state = {});
  void Refuse(SessionId session, Epoch epoch, Status reason);
  // Replaces TransportOptions::receive_bytes_per_second from now on. Over transports whose sender
  // paces, the rate holds for later grants.
  void SetReceiveRate(uint64_t bytes_per_second);
  // Cancels the hand-off (the request was cancelled). Before the grant it acts as Refuse; after the
  // grant OnReleased follows; after OnCommitted it does nothing.
  void Abort(SessionId session, Epoch epoch, Status reason);
  // Sends BYE to every peer: this worker leaves, and they must not offer anything new. Offers that
  // are already on their way still arrive.
  void Leave(const std::string& reason);

  KvTransferStats Stats() const;

 private:
  class Impl;
  explicit KvReceiver(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace baton
