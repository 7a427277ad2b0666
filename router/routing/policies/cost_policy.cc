#include "router/routing/policies/cost_policy.h"

#include <algorithm>
#include <optional>

#include "router/routing/policies/worker_cost.h"

namespace baton::router {
namespace {

// A decode worker serves a prompt alone instead of a prefill worker only if its predicted TTFT is
// at most this fraction of the TTFT through the prefill worker. The queue of a prefill worker is
// overestimated by half a prompt on average, because the router does not know the progress of the
// prompt being computed; and a prompt on a decode worker slows the sequences that decode there. In
// the simulation (open_loop_test) the longest waits are nearly equal for fractions from 0.8 to 1,
// but at 1 decode workers serve 1.5 times as many prompts alone.
constexpr double kClearlyEarlier = 0.8;

}  // namespace

Route CostPolicy::Select(const RouteQuery& query) {
  const double steps = std::min<double>(query.expected_output, query.max_tokens);
  const auto prefill_cost = [&](const Candidate& worker) { return PromptMs(worker, query); };
  const auto decode_cost = [&](const Candidate& worker) {
    return RoomMs(worker, query) + steps * StepMs(worker, query.prompt_tokens, query.samples);
  };
  const auto alone_cost = [&](const Candidate& worker) {
    return decode_cost(worker) + prefill_cost(worker);
  };
  if (query.prefill.empty())
    return MakeRoute(nullptr, choice_.Best(query.decode, alone_cost), query);

  const Candidate& prefill = choice_.Best(query.prefill, prefill_cost);
  const auto route_over = [&](const Candidate& worker) {
    const Route route = MakeRoute(&prefill, worker, query);
    if (route.prefill == nullptr) return route;
    const std::optional<double> alone = ServeAloneMs(worker, prefill, query);
    if (!alone.has_value() || *alone > kClearlyEarlier * route.ttft_ms) return route;
    return Route{nullptr, &worker, *alone};
  };
  const auto arrival_cost = [&](const Candidate& worker) {
    const Route route = route_over(worker);
    const double transfer =
        route.prefill == nullptr ? 0 : TransferMs(*route.prefill, worker, query);
    return decode_cost(worker) + route.ttft_ms + transfer;
  };
  return route_over(choice_.Best(query.decode, arrival_cost));
}

}  // namespace baton::router
