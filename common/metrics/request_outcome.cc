#include "common/metrics/request_outcome.h"

#include <array>

namespace baton {
namespace {

constexpr std::array<std::string_view, 6> kNames = {
    "done", "cancelled", "invalid", "refused", "deadline", "failed"};

}  // namespace

RequestOutcome OutcomeOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return RequestOutcome::kDone;
    case StatusCode::kCancelled:
      return RequestOutcome::kCancelled;
    case StatusCode::kInvalidArgument:
    case StatusCode::kNotFound:
    case StatusCode::kOutOfRange:
    case StatusCode::kPermissionDenied:
    case StatusCode::kUnauthenticated:
    case StatusCode::kUnimplemented:
      return RequestOutcome::kInvalid;
    case StatusCode::kResourceExhausted:
      return RequestOutcome::kRefused;
    case StatusCode::kDeadlineExceeded:
      return RequestOutcome::kDeadline;
    default:
      return RequestOutcome::kFailed;
  }
}

std::string_view Name(RequestOutcome outcome) {
  return kNames[static_cast<size_t>(outcome)];
}

OutcomeCounter::OutcomeCounter(MetricsRegistry& metrics,
                               const std::string& name,
                               const std::string& help) {
  for (const std::string_view outcome : kNames) {
    series_.push_back(metrics.AddCounter(name, help, {{"outcome", std::string(outcome)}}));
  }
}

double OutcomeCounter::total() const {
  double sum = 0;
  for (const Counter& one : series_) sum += one.value();
  return sum;
}

}  // namespace baton
