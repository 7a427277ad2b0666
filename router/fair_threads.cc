#include "router/fair_threads.h"

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
    const bool takes_large = i > 0 || count == 1;
    threads_.push_back(
        StartThread(fmt::format("{}-{}", name, i),
                    [this, takes_large](const std::stop_token&) { Run(takes_large); }));
  }
}

FairThreads::~FairThreads() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  ready_.notify_all();
  for (std::jthread& thread : threads_) thread.join();
}

void FairThreads::Post(const std::string& client, size_t bytes, std::function<void()> run) {
  {
    std::lock_guard lock(mutex_);
    (bytes > kSmallBytes ? large_ : small_).Push(client, std::move(run));
  }
  ready_.notify_all();
}

void FairThreads::Run(bool takes_large) {
  bool ran_large = false;
  while (true) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      // The wait is bounded, but correctness does not depend on a wake-up without a notification.
      ready_.wait_for(lock, std::chrono::seconds(1), [&] {
        return stopped_ || !small_.empty() || (takes_large && !large_.empty());
      });
      if (stopped_) return;
      // Alternates between large and small jobs, so that neither class starves the other.
      ran_large = takes_large && !large_.empty() && (small_.empty() || !ran_large);
      if (!ran_large && small_.empty()) continue;
      job = (ran_large ? large_ : small_).Pop();
    }
    if (const auto thrown = CaughtFrom(job)) kLog.Error("tokenizing failed: {}", *thrown);
  }
}

}  // namespace baton::router
