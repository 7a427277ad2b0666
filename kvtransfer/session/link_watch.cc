#include "kvtransfer/session/link_watch.h"

#include <algorithm>

namespace baton {
namespace {

// A hand-off is not judged before it has waited that long, so that a short stall does not end it.
constexpr Duration kObserve = std::chrono::seconds(3);
constexpr double kWindowSeconds = 4;
constexpr double kRecentSeconds = 1;
// Acknowledgements that are closer together become one point.
constexpr double kStepSeconds = 0.05;
// Without an acknowledgement the rate is known after this time.
constexpr double kSilentSeconds = 1;
constexpr double kMaxSeconds = 1e6;  // that are reported
constexpr Duration kForgetAfter = std::chrono::seconds(60);

double Rate(uint64_t bytes, double seconds) {
  return seconds > 0 ? static_cast<double>(bytes) / seconds : 0;
}

}  // namespace

double LinkWatch::Seconds(Time now) const {
  return busy_ ? seconds_ + ToSeconds(now - changed_) : seconds_;
}

void LinkWatch::SetBusy(bool busy, Time now) {
  if (busy == busy_) return;
  if (busy && now - changed_ > kForgetAfter) points_.clear();
  if (points_.empty()) {
    seconds_ = 0;
    bytes_ = 0;
    points_.push_back({});
  }
  seconds_ = Seconds(now);
  busy_ = busy;
  changed_ = now;
}

void LinkWatch::OnWritten(uint64_t bytes, Time now) {
  if (points_.empty()) return;
  const double seconds = Seconds(now);
  bytes_ += bytes;
  const size_t count = points_.size();
  if (count > 1 && points_[count - 1].seconds - points_[count - 2].seconds < kStepSeconds) {
    points_.back() = {seconds, bytes_};
  } else {
    points_.push_back({seconds, bytes_});
  }
  while (points_.size() > 2 && points_[1].seconds <= seconds - kWindowSeconds) points_.pop_front();
}

double LinkWatch::LongRate(double seconds) const {
  // The last point at or before the start of the window.
  auto first = points_.begin();
  while (first + 1 != points_.end() && (first + 1)->seconds <= seconds - kWindowSeconds) ++first;
  const double at_most = Rate(bytes_ - first->bytes + op_bytes_, seconds - first->seconds);
  if (first + 1 == points_.end()) return at_most;
  const Point& last = points_.back();
  return std::min(at_most, Rate(last.bytes - first->bytes, last.seconds - first->seconds));
}

double LinkWatch::RecentRate(double seconds) const {
  const auto first = std::ranges::find_if(
      points_, [&](const Point& point) { return point.seconds >= seconds - kRecentSeconds; });
  if (first == points_.end() || first->bytes == 0) return 0;
  const Point& last = points_.back();
  return Rate(last.bytes - first->bytes, last.seconds - first->seconds);
}

double LinkWatch::bytes_per_second(Time now) const {
  if (points_.empty() || (!busy_ && now - changed_ > kForgetAfter)) return 0;
  const double seconds = Seconds(now);
  if (bytes_ == 0 && seconds < kSilentSeconds) return 0;
  return LongRate(seconds);
}

std::vector<LinkWatch::Late> LinkWatch::FindLate(std::span<const Waiting> waiting, Time now) const {
  std::vector<Late> late;
  if (points_.empty()) return late;
  const double seconds = Seconds(now);
  const double rate = std::max(LongRate(seconds), RecentRate(seconds));
  if (rate == 0) return late;
  uint64_t ahead = 0;
  for (size_t i = 0; i < waiting.size(); ++i) {
    const Waiting& each = waiting[i];
    const double expected = static_cast<double>(ahead + each.bytes) / rate;
    if (now - each.since >= kObserve && expected > ToSeconds(each.patience)) {
      late.push_back({i, FromSeconds(std::min(expected, kMaxSeconds)), rate});
    } else {
      ahead += each.bytes;
    }
  }
  return late;
}

}  // namespace baton
