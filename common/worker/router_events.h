#pragma once

#include "common/base/ids.h"
#include "common/cluster/commands.h"
#include "common/cluster/load.h"
#include "common/worker/router_key.h"

namespace baton {

// Handlers of the messages that routers send to a worker. Called on the worker's thread.
class RouterEvents {
 public:
  virtual ~RouterEvents() = default;
  virtual void OnDispatch(RouterKey router, DispatchCommand dispatch) = 0;
  virtual void OnRedirect(RouterKey router, const RedirectCommand& redirect) = 0;
  virtual void OnCancel(RouterKey router, const CancelCommand& cancel) = 0;
  virtual void OnStopSample(RouterKey router, const StopSampleCommand& stop) = 0;
  // `peer` is a decode worker to which this worker, if it prefills, will hand KV.
  virtual void OnPeer(const Peer& peer) = 0;
  // The router requests a snapshot of the prefix cache. `clear`: and that it be emptied before.
  virtual void OnSnapshotWanted(bool clear) = 0;
  // The router requests a drain. `keep`: the process keeps running after the drain.
  virtual void OnDrain(bool keep) = 0;
  // The stream of `router` has ended: its requests are not needed any more.
  virtual void OnRouterLost(RouterKey router) = 0;
  virtual WorkerLoad Load() = 0;
};

}  // namespace baton
