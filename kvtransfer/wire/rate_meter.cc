#include "kvtransfer/wire/rate_meter.h"

namespace baton {
namespace {

// The weight of the earlier measurements, relative to a new one.
constexpr double kKeep = 0.8;

}  // namespace

void RateMeter::OnPoll(Time now, bool is_busy) {
  if (busy_since_ == Time{}) {
    if (is_busy) busy_since_ = now;
    busy_bytes_ = 0;  // moved between two calls: too little to measure
    return;
  }
  if (is_busy) return;
  bytes_ = kKeep * bytes_ + static_cast<double>(busy_bytes_);
  seconds_ = kKeep * seconds_ + ToSeconds(now - busy_since_);
  busy_since_ = Time{};
  busy_bytes_ = 0;
}

}  // namespace baton
