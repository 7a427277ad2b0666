#include "common/app/signal_waiter.h"

#include <pthread.h>

#include <algorithm>

namespace baton {

SignalWaiter::SignalWaiter(std::initializer_list<int> signals) {
  ::sigemptyset(&set_);
  for (const int signal : signals) ::sigaddset(&set_, signal);
  ::pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

int SignalWaiter::Wait(Duration limit) const {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
  timespec time{};
  time.tv_sec = seconds.count();
  time.tv_nsec = (limit - seconds).count();
  return std::max(::sigtimedwait(&set_, nullptr, &time), 0);
}

}  // namespace baton
