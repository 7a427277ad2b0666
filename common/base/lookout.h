#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "common/base/clock.h"

namespace baton {

// What a thread waits with for what other threads do. A thread that sleeps is up to 0.3 ms late on
// a machine with little else to do; when something is known to be due, LookFor lets it look all the
// time instead, for as long as that is worth a processor. All calls are made with the lock held
// under which the condition changes; that of Wait is free while it waits.
class Lookout final {
 public:
  // The condition may have changed.
  void Notify() { changed_.notify_all(); }

  // From now on, and for so long, who waits does not sleep; for no time: it does again.
  void LookFor(Duration duration) {
    look_until_ = SteadyClock().Now() + duration;
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
      if (now < look_until_) {
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
  Time look_until_{};
};

}  // namespace baton
