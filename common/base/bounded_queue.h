#pragma once

#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/busy_poll_condition.h"
#include "common/base/clock.h"

namespace baton {

// A first-in first-out queue between threads that holds at most `capacity` items. Thread-safe.
// Producers never wait: a push to a full queue fails at once. Consumers may wait. After Close() a
// push fails, and the items that are in the queue can still be popped.
template <class T>
class BoundedQueue final {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}

  // False when the queue is full or closed; the item is then dropped.
  bool TryPush(T item) {
    std::lock_guard lock(mutex_);
    if (closed_ || items_.size() >= capacity_) return false;
    items_.push_back(std::move(item));
    ready_.Notify();
    return true;
  }

  // The next item. Waits for one for at most `timeout`. Returns nothing after the time-out, or when
  // the queue is closed and empty.
  std::optional<T> Pop(Duration timeout) {
    std::unique_lock lock(mutex_);
    ready_.Wait(lock, timeout, [&] { return closed_ || !items_.empty(); });
    if (items_.empty()) return std::nullopt;
    T item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

  // Pop busy-polls for `duration` from now on instead of sleeping. For times when an item is due.
  void BusyPollFor(Duration duration) {
    std::lock_guard lock(mutex_);
    ready_.BusyPollFor(duration);
  }

  // All items in the queue, in order. Does not wait.
  std::vector<T> PopAll() {
    std::lock_guard lock(mutex_);
    std::vector<T> all(std::make_move_iterator(items_.begin()),
                       std::make_move_iterator(items_.end()));
    items_.clear();
    return all;
  }

  void Close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
    ready_.Notify();
  }

  bool closed() const {
    std::lock_guard lock(mutex_);
    return closed_;
  }
  size_t size() const {
    std::lock_guard lock(mutex_);
    return items_.size();
  }

 private:
  const size_t capacity_;
  mutable std::mutex mutex_;
  BusyPollCondition ready_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace baton
