#include "router/routing/policies/round_robin_policy.h"

#include "router/routing/policies/worker_cost.h"

namespace baton::router {

Route RoundRobinPolicy::Select(const RouteQuery& query) {
  const Candidate& decode = query.decode[decode_turn_++ % query.decode.size()];
  const Candidate* prefill =
      query.prefill.empty() ? nullptr : &query.prefill[prefill_turn_++ % query.prefill.size()];
  return MakeRoute(prefill, decode, query);
}

}  // namespace baton::router
