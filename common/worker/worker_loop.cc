#include "common/worker/worker_loop.h"

#include <optional>
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
  return tasks_.size() < kForPeers && tasks_.TryPush(std::move(task));
}

void WorkerLoop::PostInternal(Task task) {
  const bool taken = tasks_.TryPush(std::move(task));
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
    std::optional<Task> first = tasks_.Pop(next_tick - now);
    if (!first.has_value()) {
      if (stop.stop_requested()) return;
      continue;
    }
    (*first)();
    for (const Task& task : tasks_.PopAll()) task();
    hooks.after_batch();
  }
}

}  // namespace baton
