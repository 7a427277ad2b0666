#pragma once

#include <signal.h>

#include <initializer_list>

#include "common/base/clock.h"

namespace baton {

// Signals as something to wait for instead of something that interrupts. Made on the main thread
// before others start: they inherit the mask, so that only Wait() takes the signals. SIGPIPE is
// ignored, too: a closed socket is an error of its write.
class SignalWaiter final {
 public:
  SignalWaiter(std::initializer_list<int> signals);

  // The signal that came within `limit`, else 0.
  int Wait(Duration limit) const;

 private:
  sigset_t set_{};
};

}  // namespace baton
