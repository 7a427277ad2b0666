#pragma once

#include <algorithm>
#include <utility>

#include "common/base/clock.h"

namespace baton {

// Allows `burst` events at once, and `per_second` in the long run (a token bucket). Not
// thread-safe.
class FloodBudget final {
 public:
  FloodBudget(double burst, double per_second)
      : burst_(burst), per_second_(per_second), left_(burst) {}

  // Counts an event at `now`, as `cost` of them. False when there were too many.
  bool Take(Time now, double cost = 1) {
    const double seconds = ToSeconds(now - std::exchange(last_, now));
    left_ = std::min(burst_, left_ + seconds * per_second_) - cost;
    return left_ >= 0;
  }

 private:
  double burst_;
  double per_second_;
  double left_;
  Time last_;
};

}  // namespace baton
