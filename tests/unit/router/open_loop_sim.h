#pragma once

#include <memory>
#include <vector>

#include "common/base/clock.h"

namespace baton::router {

// One prefill and one decode worker under requests that do not wait for answers: real schedulers,
// step-time models, books and policy; devices, network and time are simulated. The devices are as
// fast as H200s with an 8B model.
struct OpenLoop {
  std::vector<double> arrivals;  // seconds, ascending
  double itl_target_ms = 0;      // of the decode worker
  double prefill_token_ms = 0.019;
  double decode_base_ms = 3.9;
  double transfer_ms = 1.5;  // last chunk → committed
  int prompt = 4096;
  int output = 256;
  uint64_t seed = 1;  // of the steps' noise
};

// A Poisson process.
std::vector<double> Arrivals(double rate, double seconds, uint64_t seed);

struct OpenLoopResult {
  std::vector<double> ttft_ms;       // of each request, as the following
  std::vector<double> worst_gap_ms;  // between two of its tokens
  std::vector<double> believed_ms;   // the router's prediction of ttft_ms
  std::vector<bool> alone;           // the decode worker computed its prompt
  int served_alone = 0;              // how many
  double slowest_step_ms = 0;        // of the decode worker, after the first seconds
};

OpenLoopResult Simulate(const OpenLoop& settings);

// The smallest of `values` that is not below the share `q` of them.
double Quantile(std::vector<double> values, double q);

}  // namespace baton::router
