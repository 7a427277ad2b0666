#include "router/routing/policies/routing_policy.h"

#include "router/routing/policies/cost_policy.h"
#include "router/routing/policies/least_loaded_policy.h"
#include "router/routing/policies/power_of_two_policy.h"
#include "router/routing/policies/prefix_affinity_policy.h"
#include "router/routing/policies/round_robin_policy.h"

namespace baton::router {

std::string_view Name(PolicyKind kind) {
  switch (kind) {
    case PolicyKind::kCost:
      return "cost";
    case PolicyKind::kRoundRobin:
      return "round_robin";
    case PolicyKind::kLeastLoaded:
      return "least_loaded";
    case PolicyKind::kPowerOfTwo:
      return "power_of_two";
    case PolicyKind::kPrefixAffinity:
      return "prefix_affinity";
  }
  return "unknown";
}

std::unique_ptr<RoutingPolicy> MakeRoutingPolicy(PolicyKind kind, uint64_t seed) {
  if (kind == PolicyKind::kRoundRobin) return std::make_unique<RoundRobinPolicy>();
  if (kind == PolicyKind::kLeastLoaded) return std::make_unique<LeastLoadedPolicy>(seed);
  if (kind == PolicyKind::kPowerOfTwo) return std::make_unique<PowerOfTwoPolicy>(seed);
  if (kind == PolicyKind::kPrefixAffinity) return std::make_unique<PrefixAffinityPolicy>(seed);
  return std::make_unique<CostPolicy>(seed);
}

}  // namespace baton::router
