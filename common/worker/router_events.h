#pragma once

#include <cstdint>
#include <map>

#include "common/base/hash.h"
#include "common/engine/engine.h"
#include "common/worker/worker_types.h"

namespace baton {

// A worker's load as a heartbeat carries it.
struct LoadReport {
  uint64_t sequence = 0;
  EngineStats engine;
  Hash128 digest;  // XOR of all cached block hashes as of cache event `digest_sequence`
  uint64_t digest_sequence = 0;
  std::map<WorkerId, PeerTraffic> peers;
  int32_t blocks_quarantined = 0;
  bool draining = false;
};

// What routers ask of a worker. Called on the worker's thread.
class RouterEvents {
 public:
  virtual ~RouterEvents() = default;
  virtual void OnDispatch(DispatchOrder order) = 0;
  virtual void OnRedirect(RouterKey router, const RedirectOrder& order) = 0;
  // `complete`: the request was answered in full, and is not cancelled for want of interest.
  virtual void OnCancel(RouterKey router, RequestId id, Epoch epoch, bool complete) = 0;
  virtual void OnStopSample(RouterKey router, RequestId id, Epoch epoch, int32_t sample) = 0;
  // A decode worker that this one, if it prefills, will hand KV to.
  virtual void OnPeer(const KvPeer& peer) = 0;
  virtual void OnSnapshotWanted() = 0;
  // `keep`: the process stays when nothing is left.
  virtual void OnDrainWanted(bool keep) = 0;
  // The stream of that router is gone: nobody waits for its requests any more.
  virtual void OnRouterLost(RouterKey router) = 0;
  virtual LoadReport Load() = 0;
};

}  // namespace baton
