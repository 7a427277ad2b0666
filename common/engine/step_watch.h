#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

#include "common/base/clock.h"

namespace baton {

// Detects a step that does not end. A GPU that hangs neither ends a step nor reports an error, and
// the thread that waits for the GPU cannot be interrupted. One thread at a time makes calls.
class StepWatch final {
 public:
  // Calls `overdue` at most once, on a thread of its own, when a call takes longer than `limit`.
  // Time in which the whole process is suspended does not count.
  StepWatch(Duration limit, std::function<void()> overdue);

  // Marks a call to the device as in progress during its lifetime.
  class Call final {
   public:
    // Without effect when `watch` is null. `watch` outlives the call.
    explicit Call(StepWatch* watch) : watch_(watch) { Turn(); }
    ~Call() { Turn(); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    void Turn() {
      if (watch_ != nullptr) ++watch_->turns_;
    }

    StepWatch* const watch_;
  };

 private:
  std::atomic<uint64_t> turns_ = 0;  // calls begun plus calls returned; odd during a call
  std::jthread thread_;
};

}  // namespace baton
