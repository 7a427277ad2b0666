#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "tests/explorer/handoff_world.h"

namespace baton {

// A schedule: the deviations of a world's run, and the step of each. Its text replays the run:
// "17:drop 23:crash-decode".
struct Choice {
  uint64_t step = 0;
  Deviation deviation = Deviation::kNone;
  bool operator==(const Choice&) const = default;
};
using Schedule = std::vector<Choice>;
std::string ToText(const Schedule& schedule);
StatusOr<Schedule> ParseSchedule(std::string_view text);

// What the schedules of an exploration came to.
struct Exploration {
  uint64_t schedules = 0;
  uint64_t traces = 0;  // schedules that differ in more than the order of independent events
  uint64_t steps = 0;
  uint64_t states = 0;  // distinct ones, estimated from a sample
  uint64_t served = 0;
  uint64_t committed = 0;
  uint64_t redirects = 0;
  uint64_t quarantined = 0;
  // Of the first schedule that broke an invariant, else empty.
  Schedule failing;
  std::string violation;
};

// Runs every schedule of `world` with at most `deviations` deviations of
// `scope`, depth first: the world before a deviation is copied, not computed again. Ends early at
// the first violation.
Exploration ExploreAll(const HandoffWorld& world, int deviations, Scope scope = Scope::kAll);

// Runs `count` schedules. Schedule n is a function of the seed `first_seed` + n: at each step one
// of the possible deviations happens with a probability that differs from seed to seed.
Exploration ExploreRandom(const HandoffWorld& world, uint64_t first_seed, uint64_t count);

// Runs one schedule. Returns the violation, or empty.
std::string Replay(HandoffWorld world, const Schedule& schedule);

}  // namespace baton
