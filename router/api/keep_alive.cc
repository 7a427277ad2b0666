#include "router/api/keep_alive.h"

#include <algorithm>
#include <utility>

#include "common/base/thread.h"

namespace baton::router {
namespace {

constexpr int kLooksPerInterval = 4;
constexpr Duration kShortestWait = std::chrono::milliseconds(5);

}  // namespace

KeepAlive::KeepAlive(Duration interval) : interval_(interval) {
  if (interval_ > Duration::zero()) {
    thread_ = StartThread("keep-alive", [this](const std::stop_token& stop) { Run(stop); });
  }
}

KeepAlive::~KeepAlive() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

void KeepAlive::Watch(const std::shared_ptr<ApiCall>& call) {
  if (interval_ <= Duration::zero()) return;
  std::lock_guard lock(mutex_);
  calls_.push_back(call);
}

void KeepAlive::Run(const std::stop_token& stop) {
  const SteadyClock clock;
  const Duration wait = std::max<Duration>(interval_ / kLooksPerInterval, kShortestWait);
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, stop, wait, [] { return false; })) {
    if (stop.stop_requested()) return;
    std::vector<std::weak_ptr<ApiCall>> calls = std::exchange(calls_, {});
    lock.unlock();
    const Time now = clock.Now();
    std::erase_if(calls, [&](const std::weak_ptr<ApiCall>& weak) {
      const auto call = weak.lock();
      return call == nullptr || !call->KeepAlive(now - interval_, now);
    });
    lock.lock();
    calls_.insert(calls_.end(), calls.begin(), calls.end());
  }
}

}  // namespace baton::router
