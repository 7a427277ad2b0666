#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kvtransfer/data_plane/data_plane.h"
#include "kvtransfer/handoff/transfer_core.h"
#include "kvtransfer/receiver.h"
#include "kvtransfer/session/receiver_session.h"
#include "kvtransfer/session/session_table.h"

namespace baton {

// The implementation of KvReceiver. Methods that begin with "Do" run on the thread of `core_`,
// which owns all state.
class KvReceiver::Impl final : public WindowListener {
 public:
  Impl(KvTransferOptions options, KvReceiverListener& listener);
  ~Impl() override;

  Status Start();

  const Hello& hello() const { return core_.hello(); }
  Status AddPeer(const WorkerId& peer, ControlStream* out, const Hello& theirs);
  void RemovePeer(const WorkerId& peer);
  Status OnMessage(const WorkerId& peer, Envelope envelope);
  void Leave(const std::string& reason) { core_.streams().SendToAll(Bye{reason}); }
  EventLoop& loop() { return core_.loop(); }
  KvTransferStats Stats() const { return core_.Stats(); }

  void DoGrant(const SessionKey& key,
               uint32_t cached_blocks,
               std::span<const BlockId> blocks,
               std::span<const BlockId> state);
  void DoRefuse(const SessionKey& key, Status reason);
  void DoSetReceiveRate(uint64_t bytes_per_second);
  void DoAbort(const SessionKey& key, Status reason);

  void OnArrival(const SessionKey& key,
                 const PieceArrival& piece,
                 std::string_view transport,
                 bool polls_for_seal) override;
  void OnMisplaced(const SessionKey& key, const Status& error) override { DoAbort(key, error); }
  void OnNote(const SessionKey& key, std::string_view note) override;
  void OnWindowsClosed(const SessionKey& key, const Status& status) override;

 private:
  struct Session {
    Session(const Offer& offer, const OwedBlocks& owed, const SessionTimes& times, Time now)
        : machine(offer, owed, times, now), offered(now) {}
    ReceiverSession machine;
    WorkerId peer;
    std::shared_ptr<const PeerLinks> links;
    bool granted = false;
    TransferStats stats;
    Time offered;
    Time granted_at{};
  };
  struct EndedSession {
    SessionKey key;
    Time ended;
  };

  Time Iteration(Time now);
  void DoRemovePeer(const WorkerId& id);
  void DoMessage(const WorkerId& peer, const Envelope& envelope);
  void DoOffer(const WorkerId& peer, const SessionKey& key, const Offer& offer);
  void AnswerUnknown(const WorkerId& peer, const Envelope& envelope);
  Status CheckBlocks(std::span<const BlockId> blocks) const;
  // The grant of the owed blocks in `table` and `state` (KvReceiver::Grant), but for the cached
  // ones.
  StatusOr<ReceiverSession::Reservation> Reserve(const Session& session,
                                                 uint32_t cached_blocks,
                                                 std::span<const BlockId> table,
                                                 std::span<const BlockId> state) const;
  // Passes a note to the session's machine. InvalidArgument if the note is not the session's SEAL.
  Status TakeNote(const SessionKey& key, Session& session, std::string_view note);
  // Carries out the actions of the session's machine, and counts the blocks that it found damaged.
  void Act(const SessionKey& key);
  void Act(const SessionKey& key, Session& session, ReceiverAction& action);
  Status Open(const SessionKey& key, Session& session);
  void Commit(const SessionKey& key, Session& session, const std::string& payload);
  void End(const SessionKey& key, const Session& session, const Status& status);
  void ForgetOld(Time now);
  void PublishStats();

  TransferCore core_;
  KvReceiverListener& listener_;
  uint64_t receive_rate_ = 0;  // bytes per second; 0: no bound
  std::map<WorkerId, std::shared_ptr<const PeerLinks>> peers_;
  SessionTable<Session> sessions_;  // ended sessions stay to answer late messages
  std::deque<EndedSession> ended_;
  KvTransferStats counters_;
};

}  // namespace baton
