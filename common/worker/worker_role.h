#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/cluster/commands.h"
#include "common/cluster/load.h"
#include "common/cluster/request.h"
#include "common/engine/listener.h"
#include "common/worker/router_key.h"
#include "kvtransfer/transfer_stats.h"

namespace baton {

// One side of KV hand-offs: handles requests of kind kPrefill (prefill_worker/) or kDecode
// (decode_worker/). Owned by the Worker. Every method is called on the worker's thread. The first
// call for each request is OnDispatch; (id, epoch) identifies the request.
class WorkerRole {
 public:
  virtual ~WorkerRole() = default;

  // Starts the hand-off and submits the request to the engine. AlreadyExists when the request or
  // the session is known; then nothing was submitted.
  virtual Status OnDispatch(RouterKey router, DispatchCommand dispatch) = 0;
  virtual void OnRedirect(RouterKey router, const RedirectCommand& redirect) = 0;
  // The router cancelled the request, or the router's stream ended. The engine's part of the
  // requests is already cancelled.
  virtual void OnCancel(RouterKey router, RequestId id, Epoch epoch) = 0;
  virtual void OnRouterLost(RouterKey router) = 0;
  // `peer` is a worker that hand-offs may go to.
  virtual void OnPeer(const Peer&) {}

  // The worker drains: it accepts no new requests; its present requests continue.
  virtual void OnLeaving(const std::string& reason) = 0;

  // From the engine, in order. OnEnded is the last call for a request; OK means that all its tokens
  // have arrived. For a failure, OnEnded returns whether the worker must report it to the router;
  // false when the router is informed another way.
  virtual void OnPromptStarted(RequestId id, Epoch epoch) = 0;
  virtual void OnKvLayers(const KvChunk& chunk, int32_t layers) = 0;
  virtual void OnKvChunk(const KvChunk& chunk) = 0;
  virtual void OnKvReserved(const KvReservation& reservation) = 0;
  virtual void OnToken(const TokenOutput& token) = 0;
  virtual bool OnEnded(RequestId id, Epoch epoch, const Status& status) = 0;

  virtual void OnTick(Time now) = 0;

  // The number of hand-offs that have not ended. A drain waits until it is 0.
  virtual size_t open_handoffs() const = 0;
  // KV moved since the start, by peer.
  virtual const std::map<WorkerId, PeerTraffic>& traffic() const = 0;
  virtual KvTransferStats transfers() const = 0;
  // Ends the role's streams and threads. No call follows.
  virtual void Stop() = 0;
};

}  // namespace baton
