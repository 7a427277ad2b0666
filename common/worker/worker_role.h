#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/engine/listener.h"
#include "common/worker/worker_types.h"
#include "kvtransfer/transfer_stats.h"

namespace baton {

// One side of KV hand-offs: what a worker does with requests of kind kPrefill (prefill_worker/) or
// kDecode (decode_worker/). Owned by the Worker; every call comes on the worker's thread. Each
// request gets OnDispatch first; (id, epoch) names it.
class WorkerRole {
 public:
  virtual ~WorkerRole() = default;

  // Sees to the hand-off and submits the request to the engine. AlreadyExists (and nothing was
  // submitted) when the request or the session is known.
  virtual Status OnDispatch(DispatchOrder order) = 0;
  virtual void OnRedirect(RouterKey router, const RedirectOrder& order) = 0;
  // The router wants the request no more, or all of its requests. The engine was told already.
  virtual void OnCancel(RouterKey router, RequestId id, Epoch epoch) = 0;
  virtual void OnRouterLost(RouterKey router) = 0;
  // A worker that hand-offs may go to.
  virtual void OnPeer(const KvPeer&) {}

  // The worker takes no new requests any more; those it has go on.
  virtual void OnLeaving(const std::string& reason) = 0;

  // From the engine, in order. OnEnded is the last of a request: OK when all its tokens came. Of a
  // failure it answers whether the router must be told (false: it hears of it another way).
  virtual void OnKvLayers(const KvChunk& chunk, int32_t layers) = 0;
  virtual void OnKvChunk(const KvChunk& chunk) = 0;
  virtual void OnKvReserved(const KvReservation& reservation) = 0;
  virtual void OnToken(const TokenOutput& token) = 0;
  virtual bool OnEnded(RequestId id, Epoch epoch, const Status& status) = 0;

  virtual void OnTick(Time now) = 0;

  // Hand-offs that are not over: a worker drains until there are none.
  virtual size_t open_handoffs() const = 0;
  // What moved since the start, by peer.
  virtual const std::map<WorkerId, PeerTraffic>& traffic() const = 0;
  virtual KvTransferStats transfers() const = 0;
  // Ends its streams and threads; no call comes any more.
  virtual void Stop() = 0;
};

// What every report says, success or not.
inline HandoffReport ReportOf(const std::pair<RequestId, Epoch>& request,
                              HandoffReport::Outcome outcome,
                              const Status& status) {
  HandoffReport report;
  report.id = request.first;
  report.epoch = request.second;
  report.outcome = outcome;
  report.status = status;
  return report;
}

inline Status AlreadyKnown(const std::pair<RequestId, Epoch>& request,
                           const std::pair<SessionId, Epoch>& session) {
  return MakeStatus(StatusCode::kAlreadyExists,
                    "request {} or session {} of epoch {} is known here",
                    request.first,
                    session.first,
                    session.second);
}

}  // namespace baton
