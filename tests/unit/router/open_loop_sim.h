#pragma once

#include <memory>
#include <vector>

#include "common/base/clock.h"

namespace baton::router {

// A simulation of one prefill and one decode worker under open-loop load (requests arrive without
// waiting for answers). Schedulers, step-time models, WorkerBook and policy are real; devices,
// network and time are simulated. The devices are as fast as an H200 with an 8B model.
struct OpenLoop {
  std::vector<double> arrivals;  // seconds, ascending
  double itl_target_ms = 0;      // of the decode worker; 0: no target
  double prefill_token_ms = 0.019;
  double decode_base_ms = 3.9;
  double transfer_ms = 1.5;  // from the end of the last chunk to the commit
  int prompt = 4096;
  int output = 256;
  uint64_t seed = 1;  // of the noise of step times and of the policy
};

// Arrival times of a Poisson process, in seconds. `rate`: requests per second.
std::vector<double> Arrivals(double rate, double seconds, uint64_t seed);

struct OpenLoopResult {
  // One entry per request:
  std::vector<double> ttft_ms;
  std::vector<double> worst_gap_ms;  // longest time between two tokens
  std::vector<double> believed_ms;   // the router's prediction of ttft_ms
  std::vector<bool> alone;           // the decode worker served the request alone
  int served_alone = 0;              // number of requests with `alone`
  double slowest_step_ms = 0;        // of the decode worker, after the warm-up
};

OpenLoopResult Simulate(const OpenLoop& settings);

// The `q` quantile of `values` (nearest rank); `values` is not empty.
double Quantile(std::vector<double> values, double q);

}  // namespace baton::router
