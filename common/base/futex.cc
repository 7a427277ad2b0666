#include "common/base/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace baton {

void FutexWait(uint32_t& word, uint32_t value, Duration limit) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
  const timespec relative = {.tv_sec = seconds.count(), .tv_nsec = (limit - seconds).count()};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &relative, nullptr, 0);
}

void FutexWake(uint32_t& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace baton
