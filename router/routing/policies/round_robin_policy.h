#pragma once

#include <cstddef>

#include "router/routing/policies/routing_policy.h"

namespace baton::router {

// Chooses each worker in turn, whatever its load. The baseline for comparison with other policies.
class RoundRobinPolicy final : public RoutingPolicy {
 public:
  Route Select(const RouteQuery& query) override;

 private:
  size_t prefill_turn_ = 0;
  size_t decode_turn_ = 0;
};

}  // namespace baton::router
