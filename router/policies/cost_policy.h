#pragma once

#include "router/choice.h"
#include "router/routing_policy.h"

namespace baton::router {

// Lowest predicted milliseconds: the prefill worker's queue, its time for the uncached part of the
// prompt, moving the KV that decode lacks, waiting for room there, and the decode steps of the
// expected output at the load after joining. The terms of the two workers are independent, so each
// is chosen by itself. A decode worker with an ITL target computes the prompt itself where that
// brings the first token clearly earlier: when the prefill workers have a queue.
class CostPolicy final : public RoutingPolicy {
 public:
  explicit CostPolicy(uint64_t seed) : choice_(seed) {}
  Route Select(const RouteQuery& query) override;

 private:
  Choice choice_;
};

}  // namespace baton::router
