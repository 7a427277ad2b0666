#pragma once

#include <cstdint>

#include "common/base/clock.h"

namespace baton {

// The rate of a channel over the time during which bytes moved; recent times count more. Pure: no
// clock.
class RateMeter final {
 public:
  void OnMoved(uint64_t bytes) { busy_bytes_ += bytes; }
  // To be called in each Poll of the channel, with whether bytes are on their way.
  void OnPoll(Time now, bool is_busy);
  // 0 before the first measurement.
  double bytes_per_second() const { return seconds_ > 0 ? bytes_ / seconds_ : 0; }

 private:
  // The time since which bytes are on their way, and the bytes that arrived since then.
  Time busy_since_{};
  uint64_t busy_bytes_ = 0;
  // Exponentially decaying sums over all such periods.
  double bytes_ = 0;
  double seconds_ = 0;
};

}  // namespace baton
