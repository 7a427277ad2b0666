#pragma once

#include "router/routing/policies/choice.h"
#include "router/routing/policies/routing_policy.h"

namespace baton::router {

// Chooses the worker that has cached most of the prompt, except workers that are loaded well above
// the least loaded one. When nothing is cached, chooses the worker with the fewest requests.
class PrefixAffinityPolicy final : public RoutingPolicy {
 public:
  explicit PrefixAffinityPolicy(uint64_t seed) : choice_(seed) {}
  Route Select(const RouteQuery& query) override;

 private:
  const Candidate& Pick(std::span<const Candidate> candidates);

  Choice choice_;
};

}  // namespace baton::router
