#pragma once

#include "router/choice.h"
#include "router/routing_policy.h"

namespace baton::router {

// The worker that holds most of the prompt, unless it is loaded well above the others; then, and
// where nothing is cached, the least loaded.
class PrefixAffinityPolicy final : public RoutingPolicy {
 public:
  explicit PrefixAffinityPolicy(uint64_t seed) : choice_(seed) {}
  Route Select(const RouteQuery& query) override;

 private:
  const Candidate& Pick(std::span<const Candidate> candidates);

  Choice choice_;
};

}  // namespace baton::router
