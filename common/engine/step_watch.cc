#include "common/engine/step_watch.h"

#include <condition_variable>
#include <mutex>
#include <utility>

#include "common/base/thread.h"

namespace baton {
namespace {

// A call is overdue when this many consecutive checks find the same call in progress. The checks
// are counted instead of the time, so that a pause of the whole process counts as one check.
constexpr int kLooks = 8;

// Returns when `overdue` was called or a stop is requested.
void Watch(const std::atomic<uint64_t>& turns,
           Duration limit,
           const std::function<void()>& overdue,
           const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  uint64_t found = 0;
  for (int looks = 0; looks < kLooks;) {
    if (stopped.wait_for(lock, stop, limit / kLooks, [&] { return stop.stop_requested(); })) return;
    const uint64_t now = turns;
    looks = now == std::exchange(found, now) && now % 2 == 1 ? looks + 1 : 0;
  }
  overdue();
}

}  // namespace

StepWatch::StepWatch(Duration limit, std::function<void()> overdue)
    : thread_(StartThread("step-watch",
                          [this, limit, overdue = std::move(overdue)](const std::stop_token& stop) {
                            Watch(turns_, limit, overdue, stop);
                          })) {}

}  // namespace baton
