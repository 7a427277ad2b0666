#include "router/routing/policies/power_of_two_policy.h"

#include "router/routing/policies/worker_cost.h"

namespace baton::router {

const Candidate& PowerOfTwoPolicy::Pick(std::span<const Candidate> candidates) {
  if (candidates.size() == 1) return candidates[0];
  const uint64_t first = choice_.Next(candidates.size());
  const uint64_t other = (first + 1 + choice_.Next(candidates.size() - 1)) % candidates.size();
  const Candidate& a = candidates[first];
  const Candidate& b = candidates[other];
  return RelativeLoad(b) < RelativeLoad(a) ? b : a;
}

Route PowerOfTwoPolicy::Select(const RouteQuery& query) {
  const Candidate& decode = Pick(query.decode);
  return MakeRoute(query.prefill.empty() ? nullptr : &Pick(query.prefill), decode, query);
}

}  // namespace baton::router
