#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kvtransfer/data_plane/data_plane.h"
#include "kvtransfer/handoff/transfer_core.h"
#include "kvtransfer/sender.h"
#include "kvtransfer/session/layer_units.h"
#include "kvtransfer/session/link_watch.h"
#include "kvtransfer/session/sender_session.h"
#include "kvtransfer/session/session_table.h"

namespace baton {

// The implementation of KvSender. Methods that begin with "Do" run on the thread of `core_`, which
// owns all state.
class KvSender::Impl final : public WriteListener {
 public:
  Impl(KvTransferOptions options, KvSenderListener& listener);
  ~Impl() override;

  Status Start();

  const Hello& hello() const { return core_.hello(); }
  Status AddPeer(const WorkerId& peer, ControlStream* out, const Hello& theirs);
  void RemovePeer(const WorkerId& peer);
  Status OnMessage(const WorkerId& peer, Envelope envelope);
  EventLoop& loop() { return core_.loop(); }
  int32_t layers() const { return core_.options().layout.layers(); }
  KvTransferStats Stats() const { return core_.Stats(); }

  void DoOffer(OfferRequest request);
  // The first `layers` layers of the blocks, and of the state, are final.
  void DoChunk(const SessionKey& key,
               uint32_t first,
               const std::vector<BlockId>& blocks,
               const std::vector<BlockId>& state,
               int32_t layers);
  void DoSeal(const SessionKey& key, std::string payload, Duration patience);
  void DoAbort(const SessionKey& key, Status reason);

  void OnPosted(const SessionKey& key,
                uint32_t link,
                uint32_t first,
                std::span<const uint64_t> checksums,
                uint64_t bytes) override;
  void OnWritten(const SessionKey& key, uint32_t pieces, uint64_t bytes) override;
  void OnWriteLost(const SessionKey& key, uint32_t pieces, const Status& reason) override;

 private:
  struct Session {
    Session(const SenderSession::Params& params, const SessionTimes& times, Time now)
        : machine(params, times, now), offered(now) {}
    SenderSession machine;
    WorkerId peer;
    TransferStats stats;
    Time offered;
    Time first_post{};
    Time busy_since{};
    Duration busy{};
    Duration patience = Duration::max();  // of KvSender::Seal
    Time waits_since = kNever;            // only for its writes
  };
  struct Peer {
    std::unique_ptr<PeerWriter> writer;
    LinkWatch link;
    uint32_t moving = 0;              // sessions whose writes may move
    std::vector<KvShardInfo> shards;  // of its HELLO
    uint32_t state_blocks = 0;        // StateBlocksOf its HELLO
    bool leaving = false;
  };

  Time Iteration(Time now);
  void DoAddPeer(const WorkerId& id, Peer peer);
  void DoRemovePeer(const WorkerId& id);
  void DoMessage(const WorkerId& peer, const Envelope& envelope);
  void DoGrant(const SessionKey& key, Session& session, const Envelope& envelope);
  void DoBye(const WorkerId& peer);
  void AnswerUnknown(const WorkerId& peer, const Envelope& envelope);
  // Carries out the actions of the session's machine. The session may not exist afterwards.
  void Act(const SessionKey& key);
  void Act(const SessionKey& key, Session& session, SenderAction& action);
  void Post(const SessionKey& key, Session& session, const PostBlocks& post);
  // Sends SEAL as a note of the data channel if the channel takes notes, else on the control
  // stream.
  void SendSeal(const SessionKey& key, const Session& session, baton::Seal seal);
  void Finish(const SessionKey& key, const Status& status);
  PeerWriter* Writer(const WorkerId& peer);
  // Records that writes of the session may move from now on, and that none is outstanding any more.
  void NoteStart(Session& session);
  void NoteIdle(Session& session);
  // Gives up the hand-offs for which the links to their peers are too slow.
  void GiveUpLate(Time now);
  void GiveUpLate(Peer& peer, std::span<const SessionKey> waiting, Time now);
  // The layers to send now of a chunk of `blocks` blocks: those of whole units (ChooseUnits). All
  // computed layers if bursts are preferred, or while the rates are unknown.
  int32_t LayersToSend(const Session& session, size_t blocks, int32_t layers);
  // The bytes of all blocks that were granted to the session.
  uint64_t GrantedBytes(const Session& session) const;
  void PublishStats();

  TransferCore core_;
  KvSenderListener& listener_;
  std::map<WorkerId, Peer> peers_;
  std::vector<std::unique_ptr<PeerWriter>> departing_;  // fenced; kept until their last events came
  SessionTable<Session> sessions_;
  KvTransferStats counters_;
  ComputeMeter compute_;
  // Of a block of tokens, or of a state, on all links, by cache group.
  const std::vector<uint64_t> block_bytes_;
};

}  // namespace baton
