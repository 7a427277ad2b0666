#pragma once

#include <cstdint>

#include "common/base/clock.h"
#include "common/engine/options.h"
#include "common/engine/request.h"

namespace baton {

// A sequence's place in every queue; lower goes first. Fixed for a request's life.
struct Rank {
  Time virtual_time;
  uint64_t serial = 0;  // of the request, in order of arrival
  int32_t sample = 0;
  auto operator<=>(const Rank&) const = default;
};

// Where a scheduling policy lives: it turns a request into a virtual arrival time, once.
//
//   fcfs              arrival
//   priority          arrival - priority · kPriorityStep
//   shortest_prefill  arrival + uncached prompt tokens · kPrefillStep
//   deadline          deadline - predicted work (least laxity); without one, arrival + kNoDeadline
//
// Nothing starves: a rank never changes, and whatever the policy, requests that arrive more than
// a bounded time later rank behind. So only finitely many requests ever go before a given one, and
// once they have ended it ranks first, is admitted first and preempted last.
class Ordering final {
 public:
  static constexpr Duration kPriorityStep = std::chrono::seconds(30);
  static constexpr int32_t kHighestPriority = 1000;  // priorities are cut to ± this
  static constexpr Duration kPrefillStep = std::chrono::milliseconds(1);
  static constexpr Duration kNoDeadline = std::chrono::minutes(10);

  explicit Ordering(SchedulingPolicy policy) : policy_(policy) {}

  // `uncached` prompt tokens have to be computed; a token is predicted to take `token_time`.
  Time VirtualTime(const Request& request, int64_t uncached, Duration token_time) const;

 private:
  SchedulingPolicy policy_;
};

}  // namespace baton
