#pragma once

#include "router/routing/policies/choice.h"
#include "router/routing/policies/routing_policy.h"

namespace baton::router {

// Chooses the less loaded of two workers drawn at random (Mitzenmacher 2001). Spreads requests well
// even when the load figures are old and when several routers dispatch.
class PowerOfTwoPolicy final : public RoutingPolicy {
 public:
  explicit PowerOfTwoPolicy(uint64_t seed) : choice_(seed) {}
  Route Select(const RouteQuery& query) override;

 private:
  const Candidate& Pick(std::span<const Candidate> candidates);

  Choice choice_;
};

}  // namespace baton::router
