#pragma once

#include <cstddef>
#include <functional>
#include <thread>

#include "common/base/clock.h"
#include "common/base/mailbox.h"

namespace baton {

// The worker's own thread. It runs everything except the model (the engine's thread) and sockets
// (threads of gRPC and of the transports), one task after the other, so the objects used on it need
// no locks. Tasks are short and never block.
class WorkerLoop final {
 public:
  using Task = std::function<void()>;
  struct Hooks {
    std::function<void()> after_batch;  // called after each batch of tasks, and after each tick
    std::function<void(Time)> tick;     // called every tick_every; later while tasks run
  };

  WorkerLoop(const Clock& clock, Duration tick_every) : clock_(clock), tick_every_(tick_every) {}
  ~WorkerLoop() { Stop(); }

  void Start(Hooks hooks);

  // Queues a task for a message of a peer or a router. Thread-safe. False when kForPeers tasks wait
  // or the loop has stopped: the task is dropped, and the caller must close the stream.
  bool Post(Task task);
  // Queues a task of the process itself; never dropped while the loop runs. Thread-safe. Post
  // leaves room in the queue for such tasks; a full queue means that this thread hangs, and is
  // fatal.
  void PostInternal(Task task);

  // A task is about to be posted: busy-polls for `duration` instead of sleeping. Thread-safe.
  void BusyPollFor(Duration duration) { tasks_.BusyPollFor(duration); }

  // Runs the tasks posted before, then ends the thread. Further calls do nothing.
  void Stop();

 private:
  void Run(const std::stop_token& stop, const Hooks& hooks);

  static constexpr size_t kForPeers = 32768;
  static constexpr size_t kCapacity = 262144;

  const Clock& clock_;
  const Duration tick_every_;
  Mailbox<Task> tasks_;
  std::jthread thread_;
};

}  // namespace baton
