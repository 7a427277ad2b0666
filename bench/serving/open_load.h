#pragma once

#include <functional>

#include <nlohmann/json.hpp>

#include "bench/serving/load_client.h"

namespace baton {

// Requests that arrive independently of the answers.
struct OpenLoad {
  int prompt = 4096;  // tokens
  int output = 256;   // tokens
  double rate = 7;    // requests per second
  double seconds = 15;
  // A request is good when its TTFT and the p99 of its ITL are at most these.
  double ttft_goal_ms = 2000;
  double itl_goal_ms = 50;
};

// Calls `send` (prompt and output tokens of a request) `rate` · `seconds` times at the times of a
// Poisson process, the same in every run, and waits for the answers. Returns the spread of TTFT,
// ITL and TPOT, the share of good requests, and the figures of each request in the order of
// arrival.
nlohmann::json RunOpenLoad(const OpenLoad& load, const std::function<LoadCall*(int, int)>& send);

}  // namespace baton
