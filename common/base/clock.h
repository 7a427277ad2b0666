#pragma once

#include <chrono>

namespace baton {

using Duration = std::chrono::nanoseconds;
using Time = std::chrono::time_point<std::chrono::steady_clock, Duration>;

constexpr Time kNever = Time::max();

// The source of the current time. Logic takes `Time` values; only the outermost layer holds a
// Clock, so that tests control the time.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Time Now() const = 0;
};

// The machine's monotonic clock. Thread-safe.
class SteadyClock final : public Clock {
 public:
  Time Now() const override { return std::chrono::steady_clock::now(); }
};

// A clock that a test advances by hand. Not thread-safe.
class ManualClock final : public Clock {
 public:
  Time Now() const override { return now_; }
  void Advance(Duration by) { now_ += by; }

 private:
  Time now_{std::chrono::hours(1)};
};

inline double ToSeconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}
inline double ToMillis(Duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}
inline Duration FromSeconds(double s) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(s));
}

}  // namespace baton
