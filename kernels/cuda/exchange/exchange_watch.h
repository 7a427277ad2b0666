#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include <absl/base/thread_annotations.h>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace baton::cuda {

// Ends the exchanges of a step when the group is broken or the step takes too long. Kernels that
// wait for another rank would otherwise spin for ever, and a launch behind them might block its
// thread. Has a thread of its own, which sleeps while no step is under way. Thread-safe.
class ExchangeWatch final {
 public:
  struct Options {
    // The reason why the exchanges cannot end; OK while they can. Called every few milliseconds.
    std::function<Status()> broken;
    // Makes the exchanges under way end. Called once. Both are called on the watch's thread.
    std::function<void()> abort;
    // The longest time of a step.
    Duration limit{};
    // The same for the first step, for which ranks wait that still load their weights.
    Duration first_limit{};
  };

  // `clock` outlives the watch.
  ExchangeWatch(Options options, const Clock& clock);

  // A step is issued; the oldest step has ended.
  void Begin();
  void End();
  // OK until the exchanges are aborted; then Unavailable with the reason.
  Status status() const;
  // Ends the exchanges because of `reason`, unless they have been ended before.
  void Fail(const Status& reason);
  // Whether they were aborted at least this long ago.
  bool AbortedFor(Duration time) const;

 private:
  void Run(const std::stop_token& stop);
  // The reason to end the exchanges now.
  Status Check() const;

  const Options options_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  int under_way_ ABSL_GUARDED_BY(mutex_) = 0;
  bool first_ ABSL_GUARDED_BY(mutex_) = true;
  Time began_ ABSL_GUARDED_BY(mutex_) = kNever;  // of the oldest step
  Status status_ ABSL_GUARDED_BY(mutex_);
  Time failed_ ABSL_GUARDED_BY(mutex_) = kNever;
  std::jthread thread_;
};

}  // namespace baton::cuda
