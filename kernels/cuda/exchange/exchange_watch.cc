#include "kernels/cuda/exchange/exchange_watch.h"

#include <utility>

#include "common/base/thread.h"

namespace baton::cuda {
namespace {

constexpr Duration kCheckInterval = std::chrono::milliseconds(5);

}  // namespace

ExchangeWatch::ExchangeWatch(Options options, const Clock& clock)
    : options_(std::move(options)), clock_(clock) {
  thread_ = StartThread("exchange watch", [this](const std::stop_token& stop) { Run(stop); });
}

void ExchangeWatch::Begin() {
  const std::lock_guard lock(mutex_);
  if (in_flight_++ > 0) return;
  began_ = clock_.Now();
  changed_.notify_all();
}

void ExchangeWatch::End() {
  const std::lock_guard lock(mutex_);
  first_ = false;
  began_ = --in_flight_ > 0 ? clock_.Now() : kNever;
}

Status ExchangeWatch::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

bool ExchangeWatch::AbortedFor(Duration time) const {
  const std::lock_guard lock(mutex_);
  return failed_ != kNever && clock_.Now() - failed_ >= time;
}

void ExchangeWatch::Fail(const Status& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!status_.ok()) return;
    status_ = Status(StatusCode::kUnavailable, reason.message());
    failed_ = clock_.Now();
  }
  options_.abort();
}

Status ExchangeWatch::Check() const {
  BATON_RETURN_IF_ERROR(options_.group_status());
  const std::lock_guard lock(mutex_);
  const Duration limit = first_ ? options_.first_limit : options_.limit;
  if (began_ == kNever || clock_.Now() - began_ < limit) return OkStatus();
  return MakeStatus(StatusCode::kDeadlineExceeded,
                    "a step that exchanges with other ranks has not ended within {:.1f} s: a rank "
                    "or its GPU hangs",
                    ToSeconds(limit));
}

void ExchangeWatch::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [this] { return in_flight_ > 0; })) return;
      changed_.wait_for(lock, stop, kCheckInterval, [] { return false; });
    }
    const Status reason = Check();
    if (reason.ok()) continue;
    Fail(reason);
    return;
  }
}

}  // namespace baton::cuda
