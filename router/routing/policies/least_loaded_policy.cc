#include "router/routing/policies/least_loaded_policy.h"

#include "router/routing/policies/worker_cost.h"

namespace baton::router {

Route LeastLoadedPolicy::Select(const RouteQuery& query) {
  const Candidate& decode = choice_.Best(query.decode, RelativeLoad);
  const Candidate* prefill =
      query.prefill.empty() ? nullptr : &choice_.Best(query.prefill, RelativeLoad);
  return MakeRoute(prefill, decode, query);
}

}  // namespace baton::router
