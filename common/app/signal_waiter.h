#pragma once

#include <signal.h>

#include <initializer_list>

#include "common/base/clock.h"

namespace baton {

// Lets a thread wait for signals instead of being interrupted by them. Must be constructed on the
// main thread before other threads start: they inherit the mask, so that only Wait() receives the
// signals. Also ignores SIGPIPE, so that a write to a closed socket returns an error.
class SignalWaiter final {
 public:
  SignalWaiter(std::initializer_list<int> signals);

  // Waits for a signal and returns its number; 0 when none arrives within `limit`.
  int Wait(Duration limit) const;

 private:
  sigset_t set_{};
};

}  // namespace baton
