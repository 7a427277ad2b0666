#include "common/app/descriptor_limit.h"

#include <sys/resource.h>

#include <algorithm>
#include <limits>

namespace baton {

int RaiseDescriptorLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = before;
  return static_cast<int>(
      std::min<rlim_t>(limit.rlim_cur, static_cast<rlim_t>(std::numeric_limits<int>::max())));
}

int ConnectionsWithin(int limit, int wanted, int others) {
  const int room = std::max({limit - others, limit / 2, 1});
  return std::min(wanted, room);
}

}  // namespace baton
