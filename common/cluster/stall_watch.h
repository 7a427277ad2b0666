#pragma once

#include <cstdint>

#include "common/base/clock.h"

namespace baton {

// Notices that requests wait while nothing runs. This is never right for long: one of the requests
// should run. A value; belongs to one thread.
class StallWatch final {
 public:
  // Shorter waits are normal: a message, a dial or a refusal takes some time.
  static constexpr Duration kAfter = std::chrono::seconds(5);

  enum class Change : uint8_t { kNone, kBegan, kEnded };

  // To be called about every second or more often. `waits`: requests wait. `runs`: something is
  // computed now. `progress`: a number that changes with everything that is computed. Returns what
  // has changed with this call, for the log.
  Change Observe(bool waits, bool runs, int64_t progress, Time now) {
    const bool before = stalled_ > Duration::zero();
    const bool idle = waits && !runs && progress == progress_;
    progress_ = progress;
    if (!idle) since_ = now;
    stalled_ = now - since_ >= kAfter ? now - since_ : Duration::zero();
    const bool after = stalled_ > Duration::zero();
    if (before == after) return Change::kNone;
    return after ? Change::kBegan : Change::kEnded;
  }

  // How long requests have waited while nothing ran, at the last Observe. Zero: no stall.
  Duration stalled() const { return stalled_; }

 private:
  int64_t progress_ = -1;
  Time since_{};
  Duration stalled_{};
};

}  // namespace baton
