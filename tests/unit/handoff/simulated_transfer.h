#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "common/base/ids.h"
#include "common/base/sampling_params.h"
#include "common/base/status.h"
#include "common/cluster/request.h"
#include "kvtransfer/messages/messages.h"
#include "kvtransfer/sender.h"
#include "tests/unit/handoff/event_queue.h"

namespace baton {

// Sessions of one request have the ids request · kSessionsPerRequest + n.
inline constexpr uint64_t kSessionsPerRequest = 100;
inline RequestId RequestOf(const SessionKey& session) {
  return RequestId(session.first.value() / kSessionsPerRequest);
}

// The callbacks of KvSender and KvReceiver, with the index of the worker.
class TransferListener {
 public:
  virtual ~TransferListener() = default;
  virtual void OnGranted(size_t sender, const SessionKey& session) = 0;
  virtual void OnRefused(size_t sender, const SessionKey& session, const Status& status) = 0;
  virtual void OnFinished(size_t sender, const SessionKey& session, const Status& status) = 0;
  virtual void OnOffer(size_t receiver, const SessionKey& session, uint32_t total_tokens) = 0;
  virtual void OnWithdrawn(size_t receiver, const SessionKey& session, const Status& status) = 0;
  virtual void OnCommitted(size_t receiver,
                           const SessionKey& session,
                           const std::vector<SampledToken>& first_tokens) = 0;
  virtual void OnReleased(size_t receiver, const SessionKey& session, const Status& status) = 0;
};

struct TransferFaults {
  double break_offer = 0;  // the stream breaks before OFFER arrives
  double fail = 0;         // a granted hand-off fails before it is committed
  double lose_ack = 0;     // the receiver has committed, but the sender reports a failure
  double slow_close = 0;   // closing a window takes up to 500 ms
};

// All hand-off sessions of a simulation, as the contracts of KvSender and KvReceiver describe them:
// every order of callbacks that the contracts allow can occur. Reports a violation when a worker
// breaks its side of the contracts.
class SimulatedTransfer final {
 public:
  SimulatedTransfer(EventQueue& events, const TransferFaults& faults, TransferListener& listener)
      : events_(events), faults_(faults), listener_(listener) {}

  // The methods of KvSender. Worker names are indices.
  void Offer(size_t sender, const OfferRequest& offer);
  void BlocksReady(const SessionKey& session, uint32_t first_index, size_t count);
  void Seal(const SessionKey& session, const std::vector<SampledToken>& first_tokens);
  void AbortSender(const SessionKey& session, const Status& reason);
  // The methods of KvReceiver.
  void Grant(const SessionKey& session);
  void Refuse(const SessionKey& session, const Status& reason);
  void AbortReceiver(const SessionKey& session, const Status& reason);

  // All control streams of the worker break.
  void BreakStreams(size_t worker);
  // The worker's process ends, and so do its streams.
  void Crash(size_t worker);

  // Whether a sender may still read the blocks of the request, or a receiver may write the blocks
  // of the session.
  bool MayRead(size_t sender, RequestId request) const;
  bool MayWrite(size_t receiver, RequestId request, Epoch epoch) const;
  bool IsCommitted(RequestId request, Epoch epoch) const;
  // Reports sessions that have not ended.
  void CheckEnded() const;
  size_t committed() const { return committed_.size(); }

 private:
  enum class SenderState { kOffered, kRefused, kStreaming, kDraining, kFinished };
  enum class ReceiverState { kAbsent, kPending, kGranted, kClosing, kOver };
  struct Session {
    size_t sender = 0;
    size_t receiver = 0;
    uint32_t total_tokens = 0;
    SenderState sender_state = SenderState::kOffered;
    ReceiverState receiver_state = ReceiverState::kAbsent;
    std::set<uint32_t> ready;  // indices of blocks
    bool sealed = false;
    std::vector<SampledToken> first_tokens;
    Status withdrawn;
  };

  void DeliverOffer(const SessionKey& key);
  void DeliverGrant(const SessionKey& key);
  void DeliverFail(const SessionKey& key, const Status& status);
  void RefuseAtSender(const SessionKey& key, const Status& status);
  void EndSender(const SessionKey& key, const Status& status, bool tell_peer);
  void CloseWindow(const SessionKey& key, const Status& status);
  void CommitWhenComplete(const SessionKey& key);
  void Commit(const SessionKey& key);
  void LosePeer(const SessionKey& key);

  EventQueue& events_;
  const TransferFaults faults_;
  TransferListener& listener_;
  std::map<SessionKey, Session> sessions_;
  std::set<SessionKey> committed_;
};

}  // namespace baton
