#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "common/base/clock.h"

namespace baton {

// Durations cross the wire in microseconds.
inline int64_t ToMicros(Duration duration) {
  return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
}

// Clamped: a peer's duration is not trusted to be positive, nor to fit Duration.
inline Duration FromMicros(int64_t us) {
  constexpr int64_t kLongest = int64_t{1} << 50;
  return std::chrono::microseconds(std::clamp<int64_t>(us, 0, kLongest));
}

}  // namespace baton
