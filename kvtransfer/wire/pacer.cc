#include "kvtransfer/wire/pacer.h"

#include <algorithm>
#include <limits>

namespace baton {

double Pacer::burst() const {
  return std::max(2.0, static_cast<double>(rate_) * ToSeconds(kBurst));
}

uint64_t Pacer::Allowance(Time now) {
  if (rate_ == 0) return std::numeric_limits<uint64_t>::max();
  if (filled_ == Time{}) {
    balance_ = burst();
  } else if (now > filled_) {
    balance_ += static_cast<double>(rate_) * ToSeconds(now - filled_);
  }
  filled_ = std::max(filled_, now);
  balance_ = std::min(burst(), balance_);
  is_empty_ = balance_ < (is_empty_ ? burst() / 2 : 1);
  return is_empty_ ? 0 : static_cast<uint64_t>(balance_);
}

void Pacer::Spend(uint64_t bytes) {
  if (rate_ == 0) return;
  balance_ -= static_cast<double>(bytes);
  is_empty_ = is_empty_ || balance_ < 1;
}

Time Pacer::next() const {
  if (rate_ == 0 || !is_empty_) return filled_;
  // One nanosecond more, because the conversion rounds down.
  const double lacking = std::max(0.0, burst() / 2 - balance_);
  return filled_ + FromSeconds(lacking / static_cast<double>(rate_)) + Duration(1);
}

}  // namespace baton
