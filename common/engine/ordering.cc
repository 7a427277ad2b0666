#include "common/engine/ordering.h"

#include <algorithm>

namespace baton {

Time Ordering::VirtualTime(const Request& request, int64_t uncached, Duration token_time) const {
  switch (policy_) {
    case SchedulingPolicy::kFcfs:
      return request.arrival;
    case SchedulingPolicy::kPriority:
      return request.arrival -
             std::clamp(request.priority, -kHighestPriority, kHighestPriority) * kPriorityStep;
    case SchedulingPolicy::kShortestPrefill:
      return request.arrival + uncached * kPrefillStep;
    case SchedulingPolicy::kDeadline: {
      const Time latest = request.arrival + kNoDeadline;
      const Duration work = (uncached + request.max_tokens) * token_time;
      return std::min(request.deadline, latest) - std::min(work, kNoDeadline);
    }
  }
  return request.arrival;
}

}  // namespace baton
