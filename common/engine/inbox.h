#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/busy_poll_condition.h"
#include "common/base/clock.h"
#include "common/engine/sequence.h"

namespace baton {

// What other threads ask of the engine, in order. Thread-safe; never full, since every message
// answers a bounded number of requests of the worker.
class Inbox final {
 public:
  struct Cancel {
    RequestKey key;
  };
  struct StopSample {
    RequestKey key;
    int32_t sample;
  };
  struct Activate {
    RequestKey key;
    std::vector<SampledToken> first_tokens;
  };
  struct Release {
    RequestKey key;
  };
  struct Snapshot {};
  using Message = std::variant<Request, Cancel, StopSample, Activate, Release, Snapshot>;

  void Push(Message message) {
    std::lock_guard lock(mutex_);
    messages_.push_back(std::move(message));
    settled_ = false;
    ready_.Notify();
  }

  // Swaps everything inside into `messages`, which is emptied first.
  void TakeAll(std::vector<Message>& messages) {
    messages.clear();
    std::lock_guard lock(mutex_);
    messages.swap(messages_);
  }

  // Requests that wait to be taken out, and the tokens of those that are computed here.
  struct Waiting {
    int32_t requests = 0;
    int64_t tokens = 0;
  };
  Waiting waiting() const {
    Waiting waiting;
    std::lock_guard lock(mutex_);
    for (const Message& message : messages_) {
      const auto* request = std::get_if<Request>(&message);
      if (request == nullptr) continue;
      ++waiting.requests;
      if (request->kind != RequestKind::kDecode) {
        waiting.tokens += static_cast<int64_t>(request->tokens.size());
      }
    }
    return waiting;
  }

  // Waits for a message; false when `timeout` passes first.
  bool Wait(Duration timeout) {
    std::unique_lock lock(mutex_);
    return ready_.Wait(lock, timeout, [&] { return !messages_.empty(); });
  }
  // A message is due: Wait busy-polls for `duration` instead of sleeping.
  void BusyPollFor(Duration duration) {
    std::lock_guard lock(mutex_);
    ready_.BusyPollFor(duration);
  }

  // Said after each step: whether all that was taken out has been dealt with to its end.
  void Settle(bool idle) {
    {
      std::lock_guard lock(mutex_);
      settled_ = idle && messages_.empty();
      if (!settled_) return;
    }
    idle_.notify_all();
  }

  // Waits until nothing is inside or in work; false when `timeout` passes first.
  bool WaitSettled(Duration timeout) {
    std::unique_lock lock(mutex_);
    return idle_.wait_for(lock, timeout, [&] { return settled_; });
  }

 private:
  mutable std::mutex mutex_;
  BusyPollCondition ready_;
  std::condition_variable idle_;
  std::vector<Message> messages_;
  bool settled_ = true;
};

}  // namespace baton
