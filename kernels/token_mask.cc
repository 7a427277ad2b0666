#include "kernels/token_mask.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "common/base/futex.h"

namespace baton {
namespace {

// Bounds each sleep, because the distance to kNever is not a duration that a sleep takes.
constexpr Duration kLongestSleep = std::chrono::seconds(1);

}  // namespace

void TokenMask::Begin() {
  std::atomic_ref(ready_).store(0, std::memory_order_relaxed);
}

void TokenMask::Finish() {
  std::atomic_ref(ready_).store(1, std::memory_order_release);
  FutexWake(ready_);
}

bool TokenMask::WaitUntil(Time limit) const {
  const std::atomic_ref ready(ready_);
  while (ready.load(std::memory_order_acquire) == 0) {
    const Time now = std::chrono::steady_clock::now();
    if (now >= limit) return false;
    const Duration left = limit == kNever ? kLongestSleep : limit - now;
    FutexWait(ready_, 0, std::min(left, kLongestSleep));
  }
  return true;
}

}  // namespace baton
