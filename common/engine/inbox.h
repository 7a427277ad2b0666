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

// A queue of messages from other threads to the engine, in order. Thread-safe. It has no capacity
// limit, because the worker bounds the number of its requests and each request causes few messages.
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

  // Clears `messages` and moves all queued messages into it.
  void TakeAll(std::vector<Message>& messages) {
    messages.clear();
    std::lock_guard lock(mutex_);
    messages.swap(messages_);
  }

  // The number of queued requests, and the tokens that this engine must compute for them.
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

  // Waits until a message is queued; false when `timeout` passes first.
  bool Wait(Duration timeout) {
    std::unique_lock lock(mutex_);
    return ready_.Wait(lock, timeout, [&] { return !messages_.empty(); });
  }
  // Makes Wait busy-poll for `duration` instead of sleeping, because a message is due soon.
  void BusyPollFor(Duration duration) {
    std::lock_guard lock(mutex_);
    ready_.BusyPollFor(duration);
  }

  // The engine calls this after each step. `idle`: no request that was taken out is active.
  void Settle(bool idle) {
    {
      std::lock_guard lock(mutex_);
      settled_ = idle && messages_.empty();
      if (!settled_) return;
    }
    idle_.notify_all();
  }

  // Waits until no message is queued and no request is active; false when `timeout` passes first.
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
