#pragma once

#include <cstdint>
#include <map>

#include "common/base/hash.h"
#include "common/engine/engine.h"
#include "common/worker/worker_types.h"

namespace baton {

// A worker's load, as reported in a heartbeat.
struct LoadReport {
  uint64_t sequence = 0;
  EngineStats engine;
  Hash128 digest;  // XOR of all cached block hashes as of cache event `digest_sequence`
  uint64_t digest_sequence = 0;
  std::map<WorkerId, PeerTraffic> peers;
  int32_t blocks_quarantined = 0;
  bool draining = false;
};

// Handlers of the messages that routers send to a worker. Called on the worker's thread.
class RouterEvents {
 public:
  virtual ~RouterEvents() = default;
  virtual void OnDispatch(DispatchOrder order) = 0;
  virtual void OnRedirect(RouterKey router, const RedirectOrder& order) = 0;
  // `complete`: the request was answered in full; it counts as done, not as cancelled.
  virtual void OnCancel(RouterKey router, RequestId id, Epoch epoch, bool complete) = 0;
  virtual void OnStopSample(RouterKey router, RequestId id, Epoch epoch, int32_t sample) = 0;
  // `peer` is a decode worker to which this worker, if it prefills, will hand KV.
  virtual void OnPeer(const KvPeer& peer) = 0;
  // The router requests a snapshot of the prefix cache.
  virtual void OnSnapshotWanted() = 0;
  // The router requests a drain. `keep`: the process keeps running after the drain.
  virtual void OnDrainWanted(bool keep) = 0;
  // The stream of `router` has ended: its requests are not needed any more.
  virtual void OnRouterLost(RouterKey router) = 0;
  virtual LoadReport Load() = 0;
};

}  // namespace baton
