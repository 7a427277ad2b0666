#include "router/frontend/fair_threads.h"

#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "common/base/exception_border.h"
#include "common/base/thread.h"
#include "common/log/log.h"

namespace baton::router {
namespace {

const Logger kLog("router");

}  // namespace

FairThreads::FairThreads(const std::string& name, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    workers_.push_back(std::make_unique<Worker>());
    workers_.back()->takes_large = i > 0 || count == 1;
  }
  for (size_t i = 0; i < count; ++i) {
    Worker& worker = *workers_[i];
    worker.thread = StartThread(fmt::format("{}-{}", name, i),
                                [this, &worker](const std::stop_token&) { Run(worker); });
  }
}

FairThreads::~FairThreads() {
  Stop();
}

void FairThreads::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  for (const auto& worker : workers_) worker->wake.notify_one();
  for (const auto& worker : workers_) {
    if (worker->thread.joinable()) worker->thread.join();
  }
  // Outside of the lock, because a job that is dropped may end its request.
  RoundRobinQueue<std::string, Job> small;
  RoundRobinQueue<std::string, Job> large;
  std::lock_guard lock(mutex_);
  std::swap(small, small_);
  std::swap(large, large_);
}

bool FairThreads::Post(const std::string& client, size_t bytes, std::function<void()> run) {
  const bool large = bytes > kSmallBytes;
  Worker* woken = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return false;
    (large ? large_ : small_).Push(client, std::move(run));
    woken = TakeIdle(large);
  }
  if (woken != nullptr) woken->wake.notify_one();
  return true;
}

FairThreads::Worker* FairThreads::TakeIdle(bool large) {
  for (const auto& worker : workers_) {
    if (!worker->idle || (large && !worker->takes_large)) continue;
    worker->idle = false;
    return worker.get();
  }
  return nullptr;
}

std::optional<FairThreads::Job> FairThreads::Next(Worker& worker) {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    const bool any_large = worker.takes_large && !large_.empty();
    if (any_large || !small_.empty()) {
      // Alternates between large and small jobs, so that neither class starves the other.
      worker.ran_large = any_large && (small_.empty() || !worker.ran_large);
      return (worker.ran_large ? large_ : small_).Pop();
    }
    worker.idle = true;
    // The wait is bounded, but correctness does not depend on a wake-up without a notification.
    worker.wake.wait_for(lock, std::chrono::seconds(1), [&] { return stopped_ || !worker.idle; });
    worker.idle = false;
  }
  return std::nullopt;
}

void FairThreads::Run(Worker& worker) {
  while (std::optional<Job> job = Next(worker)) {
    if (const auto thrown = CaughtFrom(*job)) kLog.Error("tokenizing failed: {}", *thrown);
  }
}

}  // namespace baton::router
