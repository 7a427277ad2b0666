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
// Producers learn at once when it is full; consumers may wait. After Close() nothing is taken in,
// and what is inside can still be taken out.
template <class T>
class BoundedQueue final {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}

  // False when full or closed; the item is then dropped.
  bool TryPush(T item) {
    std::lock_guard lock(mutex_);
    if (closed_ || items_.size() >= capacity_) return false;
    items_.push_back(std::move(item));
    ready_.Notify();
    return true;
  }

  // The next item, waiting until `timeout` passes; nothing on time-out or when closed and empty.
  std::optional<T> Pop(Duration timeout) {
    std::unique_lock lock(mutex_);
    ready_.Wait(lock, timeout, [&] { return closed_ || !items_.empty(); });
    if (items_.empty()) return std::nullopt;
    T item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

  // An item is due: Pop busy-polls for `duration` instead of sleeping.
  void BusyPollFor(Duration duration) {
    std::lock_guard lock(mutex_);
    ready_.BusyPollFor(duration);
  }

  // Everything inside, in order, without waiting.
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
