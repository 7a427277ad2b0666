#include "common/worker/worker_loop.h"

#include <utility>

#include "common/base/check.h"
#include "common/base/thread.h"

namespace baton {

void WorkerLoop::Start(Hooks hooks) {
  thread_ = StartThread("worker", [this, hooks = std::move(hooks)](const std::stop_token& stop) {
    Run(stop, hooks);
  });
}

bool WorkerLoop::Post(Task task) {
  return tasks_.Post(std::move(task), kForPeers);
}

void WorkerLoop::PostInternal(Task task) {
  const bool taken = tasks_.Post(std::move(task), kCapacity);
  BATON_CHECK(taken || tasks_.closed(), "the worker's thread hangs: {} tasks wait", kCapacity);
}

void WorkerLoop::Stop() {
  tasks_.Close();
  if (thread_.joinable()) {
    thread_.request_stop();
    thread_.join();
  }
}

void WorkerLoop::Run(const std::stop_token& stop, const Hooks& hooks) {
  Time next_tick = clock_.Now() + tick_every_;
  while (true) {
    const Time now = clock_.Now();
    if (now >= next_tick) {
      hooks.tick(now);
      hooks.after_batch();
      next_tick = now + tick_every_;
    }
    if (!tasks_.Wait(next_tick - now)) {
      if (stop.stop_requested()) return;
      continue;
    }
    for (const Task& task : tasks_.TakeAll()) task();
    hooks.after_batch();
  }
}

}  // namespace baton
