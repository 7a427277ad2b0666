#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kvtransfer/bound_transport.h"
#include "kvtransfer/event_loop.h"
#include "kvtransfer/peer_streams.h"
#include "kvtransfer/peer_writer.h"
#include "kvtransfer/sender.h"
#include "kvtransfer/sender_session.h"

namespace baton {

// KvSender's inside. Methods that begin with "Do" run on the loop's thread, which owns all state
// but the streams and the published statistics.
class KvSender::Impl final : public PieceSink {
 public:
  Impl(KvTransferOptions given, KvSenderListener& listener);
  ~Impl() override;

  Status Start();

  const Hello& hello() const { return hello_; }
  Status AddPeer(const WorkerId& peer, ControlStream* out, const Hello& theirs);
  void RemovePeer(const WorkerId& peer);
  Status OnMessage(const WorkerId& peer, Envelope envelope);
  EventLoop& loop() { return *loop_; }
  KvTransferStats Stats() const;

  void DoOffer(OfferRequest request);
  void DoChunk(const SessionKey& key, uint32_t first, const std::vector<BlockId>& blocks);
  void DoSeal(const SessionKey& key, std::string payload);
  void DoAbort(const SessionKey& key, Status reason);

  void OnPosted(const SessionKey& key,
                uint32_t link,
                uint32_t first,
                std::span<const uint64_t> checksums,
                uint64_t bytes) override;
  void OnWritten(const SessionKey& key, uint32_t pieces, uint64_t bytes) override;
  void OnLost(const SessionKey& key, uint32_t pieces, const Status& reason) override;

 private:
  struct Session {
    Session(SenderSession::Params params, const SessionTimes& times, Time now)
        : machine(std::move(params), times, now), offered(now) {}
    SenderSession machine;
    WorkerId peer;
    TransferStats stats;
    Time offered;
    Time first_post{};
    Time busy_since{};
    Duration busy{};
  };
  struct Peer {
    std::unique_ptr<PeerWriter> writer;
    bool leaving = false;
  };

  Time Turn(Time now);
  void DoAddPeer(const WorkerId& id, std::unique_ptr<PeerWriter> writer);
  void DoRemovePeer(const WorkerId& id);
  void DoMessage(const WorkerId& peer, const Envelope& envelope);
  void DoGrant(const SessionKey& key, Session& session, const Envelope& envelope);
  void DoBye(const WorkerId& peer);
  void AnswerUnknown(const WorkerId& peer, const Envelope& envelope);
  // Does what the session's machine wants; the session may be gone afterwards.
  void Act(const SessionKey& key);
  void Act(const SessionKey& key, Session& session, SenderAction& action);
  void Post(const SessionKey& key, Session& session, const PostBlocks& post);
  void Finish(const SessionKey& key, const Status& status);
  void Send(const WorkerId& peer, const SessionKey& key, ControlMessage message);
  Session* Find(const SessionKey& key);
  PeerWriter* Writer(const WorkerId& peer);
  void PublishStats();
  void Log(const std::string& line) const;
  Time Now() const { return clock_.Now(); }

  const KvTransferOptions options_;
  KvSenderListener& listener_;
  const SteadyClock clock_;
  std::vector<BoundTransport> transports_;
  Hello hello_;
  PeerStreams streams_;
  std::map<WorkerId, Peer> peers_;
  std::vector<std::unique_ptr<PeerWriter>> departing_;  // fenced; their last events are awaited
  std::map<SessionKey, Session> sessions_;
  Time next_tick_{};
  Time next_publish_{};
  uint64_t ops_of_gone_peers_ = 0;
  KvTransferStats counters_;
  mutable std::mutex stats_mutex_;
  KvTransferStats published_;
  std::unique_ptr<EventLoop> loop_;  // last: its thread uses all of the above
};

}  // namespace baton
