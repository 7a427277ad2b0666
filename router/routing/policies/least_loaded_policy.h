#pragma once

#include "router/routing/policies/choice.h"
#include "router/routing/policies/routing_policy.h"

namespace baton::router {

// Chooses, for each of the two parts, the worker with the fewest requests relative to its size.
class LeastLoadedPolicy final : public RoutingPolicy {
 public:
  explicit LeastLoadedPolicy(uint64_t seed) : choice_(seed) {}
  Route Select(const RouteQuery& query) override;

 private:
  Choice choice_;
};

}  // namespace baton::router
