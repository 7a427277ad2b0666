#pragma once

#include <cstdint>

#include "common/base/clock.h"
#include "common/cluster/request.h"
#include "common/engine/options.h"

namespace baton {

// The position of a sequence in every queue; the lowest rank is first. It never changes.
struct Rank {
  Time virtual_time;
  uint64_t serial = 0;  // the request's number in order of arrival
  int32_t sample = 0;
  auto operator<=>(const Rank&) const = default;
};

// The scheduling policy: it computes a virtual arrival time for each request, once.
//
//   fcfs              arrival: when a router accepted the request
//   priority          arrival - priority · kPriorityStep
//   shortest_prefill  arrival + uncached prompt tokens · kPrefillStep
//   deadline          deadline - predicted work (least laxity); without one, arrival + kNoDeadline
//
// No request starves: a rank never changes, and under every policy a request that arrives more than
// a bounded time later ranks after it. So only finitely many requests ever rank before a given one.
// When these have ended, it ranks first, is admitted first and is preempted last.
class Ordering final {
 public:
  static constexpr Duration kPriorityStep = std::chrono::seconds(30);
  static constexpr int32_t kHighestPriority = 1000;  // priorities are clamped to ± this
  static constexpr Duration kPrefillStep = std::chrono::milliseconds(1);
  static constexpr Duration kNoDeadline = std::chrono::minutes(10);

  explicit Ordering(SchedulingPolicy policy) : policy_(policy) {}

  // `uncached`: prompt tokens to compute. `token_time`: the predicted time of one token.
  Time VirtualTime(const Request& request, int64_t uncached, Duration token_time) const;

 private:
  SchedulingPolicy policy_;
};

}  // namespace baton
