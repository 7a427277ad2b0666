#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace baton {

// When the leader of a group began to hand on each step, and when each other rank had issued the
// step to its device, in memory that the ranks' processes share. Keeps the last kSteps steps. Each
// rank adds its own times.
class IssueTimes final {
 public:
  static constexpr uint64_t kSteps = uint64_t{1} << 15;

  // To be called before the processes are forked. ResourceExhausted.
  static StatusOr<std::unique_ptr<IssueTimes>> Create(int ranks);
  ~IssueTimes();
  IssueTimes(const IssueTimes&) = delete;

  void Add(int rank, Time at);
  // The number of steps for which `rank` has added a time.
  uint64_t steps(int rank) const;
  // From the time of rank 0 to the last rank's for the step with this number, counted from 0; empty
  // when it is not kept any more or not all ranks have issued it.
  std::optional<Duration> LagOf(uint64_t step) const;

 private:
  struct OfRank;

  IssueTimes(OfRank* ranks, int count) : ranks_(ranks), count_(count) {}

  OfRank* const ranks_;
  const int count_;
};

}  // namespace baton
