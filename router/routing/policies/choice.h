#pragma once

#include <cstdint>
#include <random>
#include <span>

#include "router/routing/policies/routing_policy.h"

namespace baton::router {

// Picks the candidate with the lowest cost. Ties go to the candidate with the fewest requests;
// remaining ties are broken at random. The same seed and the same candidates give the same choices.
// Not thread-safe.
class Choice final {
 public:
  explicit Choice(uint64_t seed) : random_(seed) {}

  // `cost(candidate)` is a double; `candidates` is not empty.
  template <class Cost>
  const Candidate& Best(std::span<const Candidate> candidates, Cost cost) {
    const Candidate* best = nullptr;
    double best_cost = 0;
    uint32_t equals = 0;
    for (const Candidate& candidate : candidates) {
      const double c = cost(candidate);
      const bool equal =
          best != nullptr && c == best_cost && candidate.load.requests == best->load.requests;
      const bool better = best == nullptr || c < best_cost ||
                          (c == best_cost && candidate.load.requests < best->load.requests);
      if (better) equals = 0;
      // Reservoir sampling: the k-th of k equals replaces the choice with probability 1/k.
      if (better || (equal && random_() % (equals + 1) == 0)) {
        best = &candidate;
        best_cost = c;
      }
      if (better || equal) ++equals;
    }
    return *best;
  }

  uint64_t Next(uint64_t below) { return random_() % below; }

 private:
  std::mt19937_64 random_;
};

}  // namespace baton::router
