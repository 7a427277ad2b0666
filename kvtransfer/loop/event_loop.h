#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "common/base/clock.h"
#include "common/base/mailbox.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"

namespace baton {

// One thread that waits for file descriptors, for work posted by other threads, and for a time.
// Post is thread-safe; everything else happens before Start or on the thread itself. Owned by
// KvSender or KvReceiver, whose state belongs to this thread.
class EventLoop final {
 public:
  // Called on the thread after all posted functions have run. Returns the time at which it must be
  // called again at the latest.
  using Iteration = std::function<Time(Time now)>;

  static StatusOr<std::unique_ptr<EventLoop>> Create(size_t max_posted);
  ~EventLoop();

  // Wakes the thread whenever `fd` is readable.
  Status Watch(int fd);
  void Start(const std::string& name, Iteration iteration);
  // Runs the posted functions, stops the thread and joins it. Functions posted later are accepted
  // but never run. Must not be called on the thread itself.
  void Stop();

  // ResourceExhausted if `max_posted` functions are waiting already.
  Status Post(std::function<void()> work);
  // As Post, without the limit: for functions that must not be lost.
  void PostAlways(std::function<void()> work);

 private:
  EventLoop(UniqueFd epoll, UniqueFd wake, size_t max_posted)
      : epoll_(std::move(epoll)), wake_(std::move(wake)), max_posted_(max_posted) {}
  void Run(const std::stop_token& stop, const Iteration& iteration);
  void Wait(Time until) const;
  void Wake() const;

  const UniqueFd epoll_;
  const UniqueFd wake_;  // eventfd
  const size_t max_posted_;
  Mailbox<std::function<void()>> posted_{[this] { Wake(); }};
  std::jthread thread_;
};

}  // namespace baton
