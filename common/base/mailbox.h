#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include "common/base/busy_poll_condition.h"
#include "common/base/clock.h"

namespace baton {

// Messages from any threads to the one thread that takes them, first in, first out. Thread-safe.
// Senders never wait. The receiver waits for messages here, or elsewhere, where `wake` reaches it.
// After Close() no message is accepted; the messages that are in the mailbox can still be taken.
template <class T>
class Mailbox final {
 public:
  static constexpr size_t kUnlimited = std::numeric_limits<size_t>::max();

  Mailbox() = default;
  // `wake` is called on the sender's thread after each message that was put into the empty mailbox,
  // for a receiver that waits for other events too.
  explicit Mailbox(std::function<void()> wake) : wake_(std::move(wake)) {}

  // False when `limit` messages wait already, or after Close(); the message is then dropped.
  bool Post(T message, size_t limit = kUnlimited) {
    {
      std::lock_guard lock(mutex_);
      if (closed_ || messages_.size() >= limit) return false;
      messages_.push_back(std::move(message));
      if (messages_.size() > 1) return true;  // the first one woke the receiver
      ready_.Notify();
    }
    if (wake_) wake_();
    return true;
  }

  // Posts messages in their order, with one wake-up. False after Close(); they are then dropped.
  bool PostAll(std::vector<T> messages) {
    if (messages.empty()) return true;
    {
      std::lock_guard lock(mutex_);
      if (closed_) return false;
      const bool first = messages_.empty();
      std::ranges::move(messages, std::back_inserter(messages_));
      if (!first) return true;
      ready_.Notify();
    }
    if (wake_) wake_();
    return true;
  }

  // Waits for a message; false when `timeout` passes first, or when the mailbox is closed and
  // empty.
  bool Wait(Duration timeout) {
    std::unique_lock lock(mutex_);
    ready_.Wait(lock, timeout, [&] { return closed_ || !messages_.empty(); });
    return !messages_.empty();
  }
  // All messages in the mailbox. Does not wait.
  std::vector<T> TakeAll() {
    std::lock_guard lock(mutex_);
    return std::exchange(messages_, {});
  }

  // Wait busy-polls for `duration` from now on instead of sleeping. For times when a message is
  // due. Zero: Wait sleeps again.
  void BusyPollFor(Duration duration) {
    std::lock_guard lock(mutex_);
    ready_.BusyPollFor(duration);
  }

  // Calls `visit` with each message in the mailbox; the mailbox is locked meanwhile.
  template <class Visit>
  void ForEach(const Visit& visit) const {
    std::lock_guard lock(mutex_);
    for (const T& message : messages_) visit(message);
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
  bool empty() const {
    std::lock_guard lock(mutex_);
    return messages_.empty();
  }

 private:
  const std::function<void()> wake_;
  mutable std::mutex mutex_;
  BusyPollCondition ready_;
  std::vector<T> messages_;
  bool closed_ = false;
};

}  // namespace baton
