#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/clock.h"
#include "common/base/sampling_params.h"
#include "common/cluster/commands.h"
#include "common/engine/listener.h"
#include "common/worker/handoff_actions.h"
#include "kvtransfer/transfer_stats.h"

namespace baton {

// The actions of DecodeHandoffs, to be carried out in order. It also uses those of
// handoff_actions.h.
struct GrantOffer {
  SessionKey session;
  KvReservation reservation;
};
struct RefuseOffer {
  SessionKey session;
  Status reason;
};
struct ActivateRequest {  // the KV is complete: the request joins the running batch
  RequestKey request;
  std::vector<SampledToken> first_tokens;  // by sample
};
using DecodeAction = std::variant<GrantOffer,
                                  RefuseOffer,
                                  AbortSession,
                                  StartRequest,
                                  ActivateRequest,
                                  ReportHandoff,
                                  ReportFailure,
                                  DropRequest,
                                  ReleaseKv>;

// The hand-offs of a decode worker: matches the dispatches of routers with the offers of prefill
// workers, which arrive in either order, and grants an offer when the engine has reserved blocks.
// If the prefill worker takes its blocks first, the engine reserves none before the offer. Pure: no
// I/O, threads or clock. Each input may request actions, which TakeActions() returns. Owned by
// DecodeRole, or by a simulation.
//
// Every hand-off ends if the engine ends every request and the receiver ends every grant. The lease
// of a reservation ends (ReleaseKv) once: when the KV is committed, when the receiver has reported
// that no byte can land any more, or at once if nothing was granted.
class DecodeHandoffs final {
 public:
  struct Limits {
    // How long an offer waits for its dispatch, and a dispatch for its offer.
    Duration match_wait = std::chrono::seconds(10);
    // The same for a dispatch whose prefill worker takes its blocks first: the prompt waits in that
    // worker's queue before it is offered.
    Duration queue_wait = std::chrono::seconds(600);
    size_t unmatched_offers = 4096;
  };

  explicit DecodeHandoffs(const Limits& limits) : limits_(limits) {}

  // From a router. AlreadyExists if the request or the session is known. After OK the caller
  // submits the request to the engine before it takes the actions.
  Status OnDispatch(RouterKey router, const DispatchCommand& dispatch, Time now);
  void OnCancel(RouterKey router, const RequestKey& key);
  void OnRouterLost(RouterKey router);
  // The worker leaves, and routers send no more dispatches.
  void OnLeaving();

  // From the engine. OnEnded is the last call for a request; it returns whether the worker must
  // report a failure to the router: false when the prefill worker reports a refusal.
  void OnReserved(const KvReservation& reservation);
  bool OnEnded(const RequestKey& key, const Status& status);

  // From the receiver: the callbacks of KvReceiverListener. `first_tokens` is the decoded payload.
  void OnOffer(const SessionKey& session, uint32_t total_tokens, Time now);
  void OnWithdrawn(const SessionKey& session, const Status& status, Time now);
  void OnCommitted(const SessionKey& session,
                   StatusOr<std::vector<SampledToken>> first_tokens,
                   const TransferStats& stats);
  void OnReleased(const SessionKey& session, const Status& status);

  // Ends waits that took too long.
  void OnTime(Time now);

  std::vector<DecodeAction> TakeActions() { return std::exchange(actions_, {}); }
  // The number of dispatched hand-offs that have not ended.
  size_t size() const { return handoffs_.size(); }

 private:
  // The states of a dispatched hand-off.
  struct Dispatched {  // lacks the offer and the reservation
    Time until{};      // the hand-off is given up
  };
  struct Reserved {  // lacks the offer
    Time until{};    // the hand-off is given up
    KvReservation reservation;
  };
  struct Offered {};  // lacks the reservation
  struct Granted {};  // bytes may land; OnCommitted or OnReleased follows
  // Granted, but the prefill worker had withdrawn the offer as not needed; OnReleased follows.
  struct NotNeeded {};
  struct Aborting {};  // granted, then given up; OnReleased follows
  using State = std::variant<Dispatched, Reserved, Offered, Granted, NotNeeded, Aborting>;

  // A dispatched request, until its KV is committed or the hand-off has ended.
  struct Handoff {
    RouterKey router;
    SessionKey session;
    WorkerId peer;
    int32_t samples = 1;
    uint32_t total_tokens = 0;
    bool peer_first = false;  // the prefill worker takes its blocks first
    State state;
  };
  using Handoffs = std::map<RequestKey, Handoff>;

  // An offer whose dispatch has not arrived.
  struct UnmatchedOffer {
    Time since{};
    uint32_t total_tokens = 0;
  };

  static bool IsGranted(const Handoff& handoff);
  static bool HasReservation(const Handoff& handoff);
  Handoffs::value_type* OfSession(const SessionKey& session);
  void Match(Handoff& handoff, uint32_t total_tokens);
  void Grant(Handoff& handoff, KvReservation reservation);
  void RefuseUnmatched(const SessionKey& session);
  void Refuse(const SessionKey& session, Status reason);
  void RememberRefusal(const SessionKey& session, const Status& reason);
  void Report(const Handoffs::value_type& entry, HandoffReport report);
  void GiveUp(const RequestKey& key, const Status& reason);
  void EndNotNeeded(const RequestKey& key);
  void Erase(const RequestKey& key);

  const Limits limits_;
  std::vector<DecodeAction> actions_;
  Handoffs handoffs_;
  std::map<SessionKey, RequestKey> sessions_;  // of handoffs_
  std::map<SessionKey, UnmatchedOffer> unmatched_;
  // Sessions that were given up before their offer arrived: the offer is refused with this reason.
  std::map<SessionKey, Status> refusals_;
  std::deque<SessionKey> refusal_order_;
  bool leaving_ = false;
};

}  // namespace baton
