#pragma once

#include <nlohmann/json.hpp>

#include "bench/serving/cluster_side.h"

namespace baton {

// TTFT, second token and KV rate of requests that a cluster of kTurns serves one at a time:
// `rounds` requests that the unified worker serves alone, and as many that it hands over to the
// decode worker, in turn. Ends the process when the router does not let the unified worker hand
// over.
nlohmann::json Latency(const SideOptions& options, Side& turns, int prompt, int rounds);

// The same of requests with a hand-off only, in a cluster of kSplit, to compare transfer settings.
nlohmann::json SplitLatency(const SideOptions& options, Side& split, int prompt, int rounds);

}  // namespace baton
