#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include <absl/base/thread_annotations.h>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace baton::cuda {

// A watchdog that aborts the exchanges of a step when the group is broken or the step takes too
// long. Otherwise kernels that wait for another rank would spin for ever, and a launch after such a
// kernel might block the launching thread. The watchdog runs on a thread of its own, which sleeps
// while no step is in flight. Thread-safe.
class ExchangeWatch final {
 public:
  struct Options {
    // Returns an error when the group is broken, so that the exchanges cannot end. Called every few
    // milliseconds on the watchdog's thread.
    std::function<Status()> group_status;
    // Aborts the exchanges in flight. Called once, on the watchdog's thread or by Fail.
    std::function<void()> abort;
    // The time limit of a step.
    Duration limit{};
    // The time limit of the first step, during which other ranks may still load their weights.
    Duration first_limit{};
  };

  // `clock` must outlive this object.
  ExchangeWatch(Options options, const Clock& clock);

  // Called when a step is issued.
  void Begin();
  // Called when the oldest step in flight has ended.
  void End();
  // OK until the exchanges are aborted; then Unavailable with the reason.
  Status status() const;
  // Aborts the exchanges because of `reason`. Does nothing if they were aborted before.
  void Fail(const Status& reason);
  // Whether the exchanges were aborted at least this long ago.
  bool AbortedFor(Duration time) const;

 private:
  void Run(const std::stop_token& stop);
  // Returns an error if the exchanges must be aborted now.
  Status Check() const;

  const Options options_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  int in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  bool first_ ABSL_GUARDED_BY(mutex_) = true;
  Time began_ ABSL_GUARDED_BY(mutex_) = kNever;  // when the oldest step in flight began
  Status status_ ABSL_GUARDED_BY(mutex_);
  Time failed_ ABSL_GUARDED_BY(mutex_) = kNever;
  std::jthread thread_;
};

}  // namespace baton::cuda
