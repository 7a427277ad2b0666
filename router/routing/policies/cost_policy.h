#pragma once

#include "router/routing/policies/choice.h"
#include "router/routing/policies/routing_policy.h"

namespace baton::router {

// Minimises a predicted time in milliseconds, the sum of: the prefill worker's queue, its time for
// the uncached part of the prompt, the transfer of the KV that the decode worker has not cached,
// the wait for room there, and the decode steps of the expected output at the load after joining.
// The terms of the two workers are independent, so each worker is chosen separately. A decode
// worker with an ITL target serves the prompt alone when its first token is then expected clearly
// earlier, which happens when the prefill workers have a queue.
class CostPolicy final : public RoutingPolicy {
 public:
  explicit CostPolicy(uint64_t seed) : choice_(seed) {}
  Route Select(const RouteQuery& query) override;

 private:
  Choice choice_;
};

}  // namespace baton::router
