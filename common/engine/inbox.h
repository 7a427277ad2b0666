#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mailbox.h"
#include "common/base/status.h"
#include "common/engine/sequence.h"

namespace baton {

// The mailbox of the engine, which also knows whether the engine has handled everything.
// Thread-safe. The mailbox has no limit, because the worker bounds the number of its requests and
// each request causes few messages.
class Inbox final {
 public:
  struct Cancel {
    RequestKey key;
  };
  struct StopSample {
    RequestKey key;
    int32_t sample;
  };
  struct PeerReady {
    RequestKey key;
  };
  struct Activate {
    RequestKey key;
    std::vector<SampledToken> first_tokens;
  };
  struct Release {
    RequestKey key;
  };
  struct Snapshot {
    bool clear;
  };
  struct Compiled {
    RequestKey key;
    StatusOr<Constraint> constraint;
  };
  using Message =
      std::variant<Request, Cancel, StopSample, PeerReady, Activate, Release, Snapshot, Compiled>;

  void Push(Message message) {
    std::lock_guard lock(settled_mutex_);
    settled_ = false;
    mailbox_.Post(std::move(message));
  }

  // As Mailbox.
  std::vector<Message> TakeAll() { return mailbox_.TakeAll(); }
  bool Wait(Duration timeout) { return mailbox_.Wait(timeout); }
  void BusyPollFor(Duration duration) { mailbox_.BusyPollFor(duration); }

  // The number of queued requests, and the tokens that this engine must compute for them.
  struct Waiting {
    int32_t requests = 0;
    int64_t tokens = 0;
  };
  Waiting waiting() const {
    Waiting waiting;
    mailbox_.ForEach([&waiting](const Message& message) {
      const auto* request = std::get_if<Request>(&message);
      if (request == nullptr) return;
      ++waiting.requests;
      if (request->kind != RequestKind::kDecode) {
        waiting.tokens += static_cast<int64_t>(request->tokens.size());
      }
    });
    return waiting;
  }

  // The engine calls this after each step. `idle`: no request that was taken out is active.
  void Settle(bool idle) {
    {
      std::lock_guard lock(settled_mutex_);
      settled_ = idle && mailbox_.empty();
      if (!settled_) return;
    }
    idle_.notify_all();
  }

  // Waits until no message is queued and no request is active; false when `timeout` passes first.
  bool WaitSettled(Duration timeout) {
    std::unique_lock lock(settled_mutex_);
    return idle_.wait_for(lock, timeout, [&] { return settled_; });
  }

 private:
  Mailbox<Message> mailbox_;
  std::mutex settled_mutex_;
  std::condition_variable idle_;
  bool settled_ = true;  // guarded by settled_mutex_
};

}  // namespace baton
