#pragma once

#include <map>

#include "common/cluster/load.h"
#include "common/worker/handoff_actions.h"
#include "common/worker/worker.h"

namespace baton {

// Carries out the actions that both roles share, and counts the KV that committed hand-offs moved.
// Logs the transport that a peer's hand-offs use when it changes.
// Used on the worker's thread.
class HandoffOutput final {
 public:
  // `worker` outlives the output.
  explicit HandoffOutput(Worker& worker) : worker_(worker) {}

  void Do(const ReportHandoff& action);
  void Do(const ReportFailure& action);
  void Do(const StartRequest& action);
  void Do(const DropRequest& action);
  void Do(const ReleaseKv& action);

  // By peer, since the start.
  const std::map<WorkerId, PeerTraffic>& traffic() const { return traffic_; }

 private:
  Worker& worker_;
  std::map<WorkerId, PeerTraffic> traffic_;
};

}  // namespace baton
