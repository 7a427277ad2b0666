#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "common/base/clock.h"

namespace baton {

// Adds up the time of steps. Several steps may be under way, and they end in the order in which
// they begin. A step takes from its begin, or from the end of the step before when that is later,
// to its end.
class StepTimer final {
 public:
  void Begin(Time now) { begins_.push_back(now); }
  void End(Time now) {
    total_ += now - std::max(begins_.front(), last_end_);
    begins_.pop_front();
    last_end_ = now;
    ++steps_;
  }
  int64_t steps() const { return steps_; }
  Duration total() const { return total_; }

 private:
  std::deque<Time> begins_;  // of the steps under way, oldest first
  Time last_end_{};
  Duration total_{};
  int64_t steps_ = 0;
};

}  // namespace baton
