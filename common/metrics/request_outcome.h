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
  kInvalid,    // the client asked for what cannot be served
  kRefused,    // for want of room
  kFailed,     // everything else: what an alarm should look at
};

RequestOutcome OutcomeOf(const Status& status);
// "done", "cancelled", "invalid", "refused", "failed".
std::string_view Name(RequestOutcome outcome);

// One counter with a series for each outcome, all of them there from the start. Thread-safe.
class OutcomeCounter final {
 public:
  OutcomeCounter(MetricsRegistry& metrics, const std::string& name, const std::string& help);

  void Add(RequestOutcome outcome) { series_[static_cast<size_t>(outcome)].Add(); }
  double value(RequestOutcome outcome) const {
    return series_[static_cast<size_t>(outcome)].value();
  }
  // Of all outcomes.
  double total() const;

 private:
  std::vector<Counter> series_;  // one an outcome
};

}  // namespace baton
