#pragma once

#include <cstddef>
#include <functional>
#include <thread>

#include "common/base/bounded_queue.h"
#include "common/base/clock.h"

namespace baton {

// The worker's own thread: everything that is neither mathematics (the engine's thread) nor a
// socket (gRPC's and the transports' threads) happens on it, one task after the other, so that what
// it owns needs no locks. Tasks are short and never block.
class WorkerLoop final {
 public:
  using Task = std::function<void()>;
  struct Hooks {
    std::function<void()> after_batch;  // when all tasks that had come were run
    std::function<void(Time)> tick;     // every tick_every, at most twice as late
  };

  WorkerLoop(const Clock& clock, Duration tick_every) : clock_(clock), tick_every_(tick_every) {}
  ~WorkerLoop() { Stop(); }

  void Start(Hooks hooks);

  // Queues what a peer or a router asks. Thread-safe. False when too much waits already, or the
  // loop has stopped: the task is dropped, and its source must be cut off.
  bool Post(Task task);
  // Queues what the process itself has to say: never dropped while the loop runs. The room for it
  // is beyond what Post may take; to fill it, this thread must have hung for many thousand steps.
  void PostOwn(Task task);

  // A task is due: the thread busy-polls for `duration` instead of sleeping. Thread-safe.
  void BusyPollFor(Duration duration) { tasks_.BusyPollFor(duration); }

  // Runs what was posted before, then ends the thread. Further calls do nothing.
  void Stop();

 private:
  void Run(const std::stop_token& stop, const Hooks& hooks);

  static constexpr size_t kForPeers = 32768;
  static constexpr size_t kCapacity = 262144;

  const Clock& clock_;
  const Duration tick_every_;
  BoundedQueue<Task> tasks_{kCapacity};
  std::jthread thread_;
};

}  // namespace baton
