#include "kvtransfer/loop/event_loop.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/base/thread.h"
#include "kvtransfer/loop/epoll.h"

namespace baton {

StatusOr<std::unique_ptr<EventLoop>> EventLoop::Create(size_t max_posted) {
  BATON_ASSIGN_OR_RETURN(UniqueFd epoll, MakeEpoll());
  BATON_ASSIGN_OR_RETURN(UniqueFd wake, MakeEventFd());
  const int wake_fd = wake.get();
  std::unique_ptr<EventLoop> loop(new EventLoop(std::move(epoll), std::move(wake), max_posted));
  BATON_RETURN_IF_ERROR(loop->Watch(wake_fd));
  return loop;
}

EventLoop::~EventLoop() {
  Stop();
}

Status EventLoop::Watch(int fd) {
  return WatchFd(epoll_.get(), fd);
}

void EventLoop::Start(const std::string& name, Iteration iteration) {
  thread_ =
      StartThread(name, [this, iteration = std::move(iteration)](const std::stop_token& stop) {
        Run(stop, iteration);
      });
}

void EventLoop::Stop() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  Wake();
  thread_.join();
}

Status EventLoop::Post(std::function<void()> work) {
  if (posted_.Post(std::move(work), max_posted_)) return OkStatus();
  return MakeStatus(
      StatusCode::kResourceExhausted, "{} KV transfer commands are queued already", max_posted_);
}

void EventLoop::PostAlways(std::function<void()> work) {
  posted_.Post(std::move(work));
}

void EventLoop::Wake() const {
  const uint64_t one = 1;
  // The write can only fail if the counter is full, and then the thread is awake anyway.
  (void)!::write(wake_.get(), &one, sizeof(one));
}

void EventLoop::Run(const std::stop_token& stop, const Iteration& iteration) {
  const SteadyClock clock;
  while (!stop.stop_requested()) {
    for (const auto& work : posted_.TakeAll()) work();
    const Time until = iteration(clock.Now());
    Wait(until);
  }
  for (const auto& work : posted_.TakeAll()) work();
}

void EventLoop::Wait(Time until) const {
  constexpr int kLongestMs = 500;
  const Time now = SteadyClock().Now();
  int timeout_ms = 0;
  if (until > now) {
    const Duration left = std::min<Duration>(until - now, std::chrono::milliseconds(kLongestMs));
    timeout_ms = static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
  }
  std::array<epoll_event, 16> events;
  const int count =
      ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
  for (int i = 0; i < count; ++i) {
    uint64_t value = 0;
    if (events[static_cast<size_t>(i)].data.fd == wake_.get()) {
      (void)!::read(wake_.get(), &value, sizeof(value));
    }
  }
}

}  // namespace baton
