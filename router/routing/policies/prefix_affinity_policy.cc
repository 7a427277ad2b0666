#include "router/routing/policies/prefix_affinity_policy.h"

#include <algorithm>

#include "router/routing/policies/worker_cost.h"

namespace baton::router {
namespace {

// A worker that has more than this many requests above the least loaded one loses its affinity.
constexpr int32_t kImbalance = 32;

}  // namespace

const Candidate& PrefixAffinityPolicy::Pick(std::span<const Candidate> candidates) {
  int32_t least = candidates[0].load.requests;
  for (const Candidate& c : candidates) least = std::min(least, c.load.requests);
  return choice_.Best(candidates, [&](const Candidate& c) {
    if (c.load.requests > least + kImbalance) return RelativeLoad(c) + 1;
    return -static_cast<double>(c.cached_tokens);
  });
}

Route PrefixAffinityPolicy::Select(const RouteQuery& query) {
  const Candidate& decode = Pick(query.decode);
  return MakeRoute(query.prefill.empty() ? nullptr : &Pick(query.prefill), decode, query);
}

}  // namespace baton::router
