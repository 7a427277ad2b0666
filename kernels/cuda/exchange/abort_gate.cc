#include "kernels/cuda/exchange/abort_gate.h"

namespace baton::cuda {

void AbortGate::OnPosted() {
  const std::lock_guard lock(mutex_);
  ++posted_;
}

bool AbortGate::Start() {
  const std::lock_guard lock(mutex_);
  if (aborts_ > 0 && SteadyClock().Now() < closed_ + limits_.hold) return false;
  ++started_;
  return true;
}

void AbortGate::OnEnded(size_t posted, size_t started) {
  {
    const std::lock_guard lock(mutex_);
    posted_ -= posted;
    started_ -= started;
  }
  changed_.notify_all();
}

void AbortGate::Abort(const std::function<void()>& abort) {
  {
    std::unique_lock lock(mutex_);
    // While another abort runs, exchanges that were posted are not started. To wait for them would
    // be wrong: the other abort may wait for the kernels that this one stops.
    changed_.wait_for(
        lock, limits_.wait, [&] { return posted_ == 0 || (aborts_ > 0 && started_ == 0); });
    if (aborts_++ == 0) closed_ = SteadyClock().Now();
  }
  abort();
  {
    const std::lock_guard lock(mutex_);
    --aborts_;
  }
  changed_.notify_all();
}

}  // namespace baton::cuda
