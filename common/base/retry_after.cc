#include "common/base/retry_after.h"

#include <charconv>
#include <string>

#include <absl/strings/cord.h>

namespace baton {
namespace {

constexpr const char* kPayload = "baton/retry_after_ns";

}  // namespace

Status WithRetryAfter(Status status, Duration wait) {
  status.SetPayload(kPayload, absl::Cord(std::to_string(wait.count())));
  return status;
}

std::optional<Duration> RetryAfterOf(const Status& status) {
  const auto payload = status.GetPayload(kPayload);
  if (!payload.has_value()) return std::nullopt;
  const std::string text(*payload);
  Duration::rep wait = 0;
  std::from_chars(text.data(), text.data() + text.size(), wait);
  return Duration(wait);
}

}  // namespace baton
