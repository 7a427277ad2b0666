#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/clock.h"
#include "common/base/sampling_params.h"
#include "common/cluster/commands.h"
#include "common/engine/listener.h"
#include "common/worker/handoff_actions.h"
#include "kvtransfer/sender.h"

namespace baton {

// The actions of PrefillHandoffs, to be carried out in order. It also uses those of
// handoff_actions.h.
struct ConnectPeer {  // OnPeerSettled follows, perhaps at once
  Peer peer;
};
struct OfferKv {
  OfferRequest offer;
};
struct SendBlocks {  // these blocks are final in layers [0, layers), or in all layers
  SessionKey session;
  uint32_t first_index = 0;
  std::vector<BlockId> blocks;
  std::optional<int32_t> layers;
  std::vector<BlockId> state = {};  // KvChunk::state
};
struct SealKv {
  SessionKey session;
  std::vector<SampledToken> first_tokens;  // by sample
  uint32_t total_tokens = 0;
  Duration computed{};  // how long the prompt was computed
  bool pinned = false;  // the request has no other way
};
using PrefillAction = std::variant<ConnectPeer,
                                   OfferKv,
                                   SendBlocks,
                                   SealKv,
                                   AbortSession,
                                   StartRequest,
                                   ReportHandoff,
                                   ReportFailure,
                                   DropRequest,
                                   ReleaseKv>;

// The hand-offs of a prefill worker, one for each dispatched request: matches the router's
// commands, the engine's events and the sender's events. A prompt is offered when the engine has
// begun it. If the decode worker takes its blocks first, the prompt is offered at once, and the
// engine begins it after the grant. Pure: no I/O, threads or clock. Each input
// may request actions, which TakeActions() returns. Owned by PrefillRole, or by a simulation.
//
// Every hand-off ends if the engine ends every request and the sender ends every session. The
// lease of a prompt's KV ends (ReleaseKv) once, when the engine has ended the request and the
// sender has ended every session of it.
class PrefillHandoffs final {
 public:
  struct Limits {
    // How long a refused hand-off waits for the router to name another decode worker.
    Duration redirect_wait = std::chrono::seconds(10);
    // The longest time for a hand-off, from its first offer, also when its request has a later
    // deadline or none.
    Duration handoff = std::chrono::seconds(600);
  };

  explicit PrefillHandoffs(const Limits& limits) : limits_(limits) {}

  // From a router. AlreadyExists if the request or the session is known. After OK the caller
  // submits the request to the engine before it takes the actions.
  Status OnDispatch(RouterKey router, const DispatchCommand& dispatch);
  void OnRedirect(RouterKey router, const RedirectCommand& redirect);
  void OnCancel(RouterKey router, const RequestKey& key);
  void OnRouterLost(RouterKey router);

  // From the streams to decode workers: `peer` is connected (OK), or it cannot be reached.
  void OnPeerSettled(const WorkerId& peer, const Status& status, Time now);

  // From the engine, in order. OnStarted: the engine has all blocks of the prompt. OnEnded is the
  // last call for a request.
  void OnStarted(const RequestKey& key, Time now);
  void OnLayers(const KvChunk& chunk, int32_t layers);
  void OnChunk(const KvChunk& chunk, Time now);
  void OnToken(const TokenOutput& token);
  void OnEnded(const RequestKey& key, const Status& status);

  // From the sender: the callbacks of KvSenderListener.
  void OnGranted(const SessionKey& session);
  void OnRefused(const SessionKey& session, const Status& status, Time now);
  void OnFinished(const SessionKey& session,
                  const Status& status,
                  const TransferStats& stats,
                  Time now);

  // Ends waits that took too long.
  void OnTime(Time now);

  std::vector<PrefillAction> TakeActions() { return std::exchange(actions_, {}); }
  // The number of hand-offs that have not ended.
  size_t size() const { return handoffs_.size(); }

 private:
  // The states of the present session.
  struct Connecting {};  // the peer is being dialled; the sender does not know the session
  struct Connected {};  // the engine has not begun the prompt; the sender does not know the session
  struct Offered {};    // the sender has the session
  struct Refused {      // waits for a redirect
    Time since{};
    bool in_sender = false;  // the sender keeps the session until it is aborted
  };
  struct Closed {};  // over, or given up
  using SessionState = std::variant<Connecting, Connected, Offered, Refused, Closed>;

  // The states of the computation.
  struct Computing {
    std::vector<SampledToken> first_tokens;  // by sample
    bool continues = false;                  // a sample continues after its first token
  };
  struct Computed {  // all blocks are final
    std::vector<SampledToken> first_tokens;
  };
  struct Ended {};  // the engine has ended the request, and there is nothing to hand over
  using EngineState = std::variant<Computing, Computed, Ended>;

  struct Handoff {
    RouterKey router;
    uint32_t total_tokens = 0;
    int32_t first_sample = 0;
    Time deadline{};
    bool peer_first = false;  // the decode worker takes its blocks first
    bool held = false;        // the engine does not begin the prompt before StartRequest
    bool started = false;     // the engine has begun the prompt
    bool pinned = false;      // no other workers may serve the request
    SessionKey session;       // its epoch is the decode worker's
    WorkerId peer;
    SessionState session_state;
    int32_t aborted_sessions = 0;  // that the sender has not finished
    EngineState engine_state;
    std::vector<BlockId> blocks{};  // final ones, by index in the prompt
    std::vector<BlockId> state{};   // of the last chunk, if layers have states
    Time started_at{};
    Time last_chunk{};
    bool leased = false;  // the engine holds a lease on the blocks until ReleaseKv
  };
  using Handoffs = std::map<RequestKey, Handoff>;

  Handoff* Find(const RequestKey& key);
  void OfferIfReady(Handoff& handoff, Time now);
  void Offer(Handoff& handoff, Time now);
  void StartIfHeld(const RequestKey& key, Handoff& handoff);
  void Seal(const Handoff& handoff, const std::vector<SampledToken>& first_tokens);
  void Send(const Handoff& handoff, const KvChunk& chunk, std::optional<int32_t> layers);
  void Refuse(Handoffs::value_type& entry, bool in_sender, const Status& status, Time now);
  void Report(const Handoffs::value_type& entry, HandoffReport report);
  void ReportCommitted(const Handoffs::value_type& entry, const TransferStats& stats, Time now);
  void ReportFailed(const Handoffs::value_type& entry, const Status& status);
  void CloseSession(Handoff& handoff, const Status& reason);
  void EraseIfOver(const RequestKey& key);

  const Limits limits_;
  std::vector<PrefillAction> actions_;
  Handoffs handoffs_;
  std::map<SessionKey, RequestKey> sessions_;  // present and aborted ones
};

}  // namespace baton
