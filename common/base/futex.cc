#include "common/base/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

namespace baton {

void FutexWait(std::atomic<uint32_t>& word, uint32_t expected, Duration timeout) {
  using std::chrono::nanoseconds;
  using std::chrono::seconds;
  const Duration wait = std::max(timeout, Duration::zero());
  const auto whole = std::chrono::duration_cast<seconds>(wait);
  timespec limit{};
  limit.tv_sec = whole.count();
  limit.tv_nsec = std::chrono::duration_cast<nanoseconds>(wait - whole).count();
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, expected, &limit, nullptr, 0);
}

void FutexWakeAll(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace baton
