#pragma once

#include <cstdint>
#include <optional>

#include "common/base/clock.h"

namespace baton::router {

// The mean time that recent requests took, and what follows from it for a request that must wait
// for the end of another one. Not thread-safe.
class ServiceTime final {
 public:
  // Counts a request that has ended.
  void Add(Duration time) { mean_ = mean_.has_value() ? *mean_ + (time - *mean_) / kRecent : time; }
  // The expected time until one of `running` requests ends: their mean time / their number
  // (Little's law). Nothing while no request has ended or none is running.
  std::optional<Duration> UntilNextEnd(int64_t running) const {
    if (!mean_.has_value() || running <= 0) return std::nullopt;
    return *mean_ / running;
  }

 private:
  static constexpr int kRecent = 16;  // requests that determine most of the mean
  std::optional<Duration> mean_;
};

}  // namespace baton::router
