#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kvtransfer/peer_writer.h"
#include "kvtransfer/receiver.h"
#include "kvtransfer/receiver_session.h"
#include "kvtransfer/session_table.h"
#include "kvtransfer/transfer_core.h"

namespace baton {

// The implementation of KvReceiver. Methods that begin with "Do" run on the thread of `core_`,
// which owns all state.
class KvReceiver::Impl final {
 public:
  Impl(KvTransferOptions options, KvReceiverListener& listener);
  ~Impl();

  Status Start();

  const Hello& hello() const { return core_.hello(); }
  Status AddPeer(const WorkerId& peer, ControlStream* out, const Hello& theirs);
  void RemovePeer(const WorkerId& peer);
  Status OnMessage(const WorkerId& peer, Envelope envelope);
  void Leave(const std::string& reason) { core_.streams().SendToAll(Bye{reason}); }
  EventLoop& loop() { return core_.loop(); }
  KvTransferStats Stats() const { return core_.Stats(); }

  void DoGrant(const SessionKey& key, uint32_t cached_blocks, std::span<const BlockId> blocks);
  void DoRefuse(const SessionKey& key, Status reason);
  void DoAbort(const SessionKey& key, Status reason);

 private:
  struct Peer {
    Hello theirs;
    std::vector<KvLink> links;
  };
  struct Session {
    Session(const Offer& offer, uint32_t block_count, const SessionTimes& times, Time now)
        : machine(offer, block_count, times, now), offered(now) {}
    ReceiverSession machine;
    WorkerId peer;
    std::vector<KvShard> sources;  // the peer's shards
    std::vector<KvLink> links;
    uint64_t window_key = 0;
    bool granted = false;
    size_t open_windows = 0;
    TransferStats stats;
    Time offered;
    Time granted_at{};
  };
  struct WindowOwner {
    SessionKey session;
    uint32_t shard = 0;
  };
  struct EndedSession {
    SessionKey key;
    Time ended;
  };

  Time Iteration(Time now);
  void DoAddPeer(const WorkerId& id, Peer peer);
  void DoRemovePeer(const WorkerId& id);
  void DoMessage(const WorkerId& peer, const Envelope& envelope);
  void DoOffer(const WorkerId& peer, const SessionKey& key, const Offer& offer);
  void AnswerUnknown(const WorkerId& peer, const Envelope& envelope);
  Status CheckBlocks(std::span<const BlockId> blocks) const;
  void OnArrival(const Arrival& arrival, const Transport& transport);
  void OnNote(const SessionKey& key, Session& session, std::string_view note);
  // OK if the payload was written exactly where its tag says.
  Status CheckPlacement(const Session& session,
                        const WindowOwner& owner,
                        const Arrival& arrival,
                        const PieceArrival& piece) const;
  // Carries out the actions of the session's machine, and counts the blocks that it found damaged.
  void Act(const SessionKey& key);
  void Act(const SessionKey& key, Session& session, ReceiverAction& action);
  Status OpenAll(const SessionKey& key, Session& session);
  void CloseAll(Session& session);
  void Commit(const SessionKey& key, Session& session, const std::string& payload);
  void End(const SessionKey& key, const Session& session, const Status& status);
  void ForgetOld(Time now);
  void PublishStats();

  TransferCore core_;
  KvReceiverListener& listener_;
  std::map<WorkerId, Peer> peers_;
  SessionTable<Session> sessions_;  // ended sessions stay to answer late messages
  std::deque<EndedSession> ended_;
  std::unordered_map<uint64_t, WindowOwner> windows_;  // by window key
  KvTransferStats counters_;
};

}  // namespace baton
