#include "router/policies/cost_policy.h"

#include <algorithm>

#include "router/worker_cost.h"

namespace baton::router {

Route CostPolicy::Select(const RouteQuery& query) {
  const double steps = std::min<double>(query.expected_output, query.max_tokens);
  const auto prefill_cost = [&](const Candidate& worker) {
    return QueueMs(worker) + PrefillMs(worker, query.prompt_tokens);
  };
  const auto decode_cost = [&](const Candidate& worker) {
    return RoomMs(worker, query) + steps * StepMs(worker, query.prompt_tokens, query.samples);
  };
  const auto lone_cost = [&](const Candidate& worker) {
    return decode_cost(worker) + prefill_cost(worker);
  };
  if (query.prefill.empty())
    return MakeRoute(nullptr, choice_.Best(query.decode, lone_cost), query);

  const Candidate& prefill = choice_.Best(query.prefill, prefill_cost);
  const auto arrival_cost = [&](const Candidate& worker) {
    const double before = MayServeLocally(worker, query)
                              ? prefill_cost(worker)
                              : prefill_cost(prefill) + TransferMs(worker, query);
    return decode_cost(worker) + before;
  };
  return MakeRoute(&prefill, choice_.Best(query.decode, arrival_cost), query);
}

}  // namespace baton::router
