#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>

#include "common/base/clock.h"

namespace baton::cuda {

// Keeps the aborts of NCCL's communicators apart from the exchanges of other communicators of the
// process. ncclCommAbort frees host memory, and the driver then waits, with a lock that every
// launch needs, until all kernels of the process have ended. An exchange that runs at that time
// waits for its peer. If the peer's launch waits for a lock in the same way (or for this lock,
// because both ends are in one process), none of the two ever ends. So an abort begins at a moment
// when nothing is exchanged, and no exchange starts while it runs. Both waits are bounded.
// Thread-safe.
class AbortGate final {
 public:
  // How long an abort waits for such a moment, and how long exchanges wait for an abort. Shorter
  // than the time after which a peer takes an exchange for lost (5 s), so that no peer does.
  struct Limits {
    Duration wait = std::chrono::seconds(2);
    Duration hold = std::chrono::seconds(1);
  };

  explicit AbortGate(const Limits& limits) : limits_(limits) {}

  // An exchange was posted. Its peer may already wait for it, so a later abort waits until it ends.
  void OnPosted();
  // Whether an exchange that was posted may be started. If so, counts it as running.
  bool Start();
  // Exchanges ended, or belong to a communicator that is being aborted. `started` of the `posted`
  // ones had been started.
  void OnEnded(size_t posted, size_t started);
  // Calls `abort`, on this thread, when no exchange is posted, or when the wait has taken too long.
  void Abort(const std::function<void()>& abort);

 private:
  const Limits limits_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t posted_ = 0;
  size_t started_ = 0;  // of the posted ones
  size_t aborts_ = 0;   // that run
  Time closed_{};       // when the first of them began
};

}  // namespace baton::cuda
