#pragma once

#include <cstdint>

#include "common/base/clock.h"

namespace baton {

// Bounds how many bytes per second move into a decode worker's memory: decode steps need the same
// memory, and KV that arrives at full speed makes them slower. A token bucket that is refilled at
// the rate, up to what the rate moves in kBurst. A move may overdraw the bucket, so that a piece of
// any size can move; the next move then waits for longer. An empty bucket is used again when it is
// half full, because small pieces cost more. Pure: no clock.
class Pacer final {
 public:
  static constexpr Duration kBurst = std::chrono::milliseconds(2);

  // 0 bytes per second: no bound.
  explicit Pacer(uint64_t bytes_per_second = 0) : rate_(bytes_per_second) {}

  uint64_t rate() const { return rate_; }
  void SetRate(uint64_t bytes_per_second) { rate_ = bytes_per_second; }
  // The bytes that may move now; 0 when the caller must wait until next().
  uint64_t Allowance(Time now);
  // `bytes` bytes move at the time of the last Allowance.
  void Spend(uint64_t bytes);
  // When bytes may move again. In the past if they may move now.
  Time next() const;

 private:
  double burst() const;

  uint64_t rate_ = 0;
  double balance_ = 0;     // bytes
  bool is_empty_ = false;  // until the bucket is half full
  Time filled_{};          // zero before the first call of Allowance
};

}  // namespace baton
