#include "common/engine/ordering.h"

#include <algorithm>

namespace baton {

Time Ordering::VirtualTime(const Request& request, int64_t uncached, Duration token_time) const {
  const Time arrival = request.arrival - request.age;
  switch (policy_) {
    case SchedulingPolicy::kFcfs:
      return arrival;
    case SchedulingPolicy::kPriority:
      return arrival -
             std::clamp(request.priority, -kHighestPriority, kHighestPriority) * kPriorityStep;
    case SchedulingPolicy::kShortestPrefill:
      return arrival + uncached * kPrefillStep;
    case SchedulingPolicy::kDeadline: {
      const Time latest = arrival + kNoDeadline;
      const Duration work = (uncached + request.max_tokens) * token_time;
      return std::min(request.deadline, latest) - std::min(work, kNoDeadline);
    }
  }
  return arrival;
}

}  // namespace baton
