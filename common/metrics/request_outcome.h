#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/metrics/metrics.h"

namespace baton {

// How a request ended, as metrics count it.
enum class RequestOutcome : uint8_t {
  kDone,
  kCancelled,  // by its client
  kInvalid,    // the client's error: this request can never be served
  kRefused,    // RESOURCE_EXHAUSTED
  kDeadline,   // DEADLINE_EXCEEDED: the request's own time was over
  kFailed,     // any other error; alarms should watch this one
};

RequestOutcome OutcomeOf(const Status& status);
// "done", "cancelled", "invalid", "refused", "deadline", "failed".
std::string_view Name(RequestOutcome outcome);

// One counter with a series for each outcome. All series exist from the start. Thread-safe.
class OutcomeCounter final {
 public:
  OutcomeCounter(MetricsRegistry& metrics, const std::string& name, const std::string& help);

  void Add(RequestOutcome outcome) { series_[static_cast<size_t>(outcome)].Add(); }
  double value(RequestOutcome outcome) const {
    return series_[static_cast<size_t>(outcome)].value();
  }
  // The sum over all outcomes.
  double total() const;

 private:
  std::vector<Counter> series_;  // one for each outcome, in the order of the enum
};

}  // namespace baton
