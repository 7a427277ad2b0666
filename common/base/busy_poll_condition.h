#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "common/base/clock.h"

namespace baton {

// A condition variable whose waiter can busy-poll. Waking a sleeping thread takes up to 0.3 ms on
// an idle machine; BusyPollFor keeps the waiter awake for a short time in which a change is due.
// The caller of every method holds the mutex that guards the condition. Wait releases the mutex
// while it waits.
class BusyPollCondition final {
 public:
  // Makes waiters check the condition again. To be called after each change of the condition.
  void Notify() { changed_.notify_all(); }

  // Waiters busy-poll for `duration` from now on instead of sleeping. Zero: waiters sleep again.
  void BusyPollFor(Duration duration) {
    busy_poll_until_ = SteadyClock().Now() + duration;
    Notify();
  }

  // Waits until `done()`; false when `timeout` passes first.
  template <class Done>
  bool Wait(std::unique_lock<std::mutex>& lock, Duration timeout, const Done& done) {
    const SteadyClock clock;
    const Time until = clock.Now() + timeout;
    while (!done()) {
      const Time now = clock.Now();
      if (now >= until) return false;
      if (now < busy_poll_until_) {
        lock.unlock();
        std::this_thread::yield();
        lock.lock();
      } else {
        changed_.wait_until(lock, until);
      }
    }
    return true;
  }

 private:
  std::condition_variable changed_;
  Time busy_poll_until_{};
};

}  // namespace baton
