#include "common/base/work_threads.h"

#include <utility>

#include "common/base/thread.h"

namespace baton {

WorkThreads::~WorkThreads() {
  for (std::jthread& thread : threads_) thread.request_stop();
  changed_.notify_all();
}

void WorkThreads::Post(std::function<void()> work) {
  {
    std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    while (std::cmp_less(threads_.size(), count_)) {
      threads_.push_back(StartThread(name_, [this](const std::stop_token& stop) { Run(stop); }));
    }
  }
  changed_.notify_one();
}

void WorkThreads::DropWaiting() {
  std::lock_guard lock(mutex_);
  work_.clear();
}

// After a stop the wait returns false only when no work is left.
void WorkThreads::Run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return !work_.empty(); })) {
    const std::function<void()> work = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    work();
    lock.lock();
  }
}

}  // namespace baton
