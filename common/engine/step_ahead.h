#pragma once

#include <algorithm>
#include <cstdint>

#include "common/base/clock.h"
#include "common/engine/step_time.h"

namespace baton {

// Decides when the host plans and issues the step behind a decode step that the device computes: as
// late as possible, so that requests which arrive meanwhile can be in it, but early enough that the
// device does not wait. For that it remembers how long the device took for the last decode step and
// how long the host takes to plan and issue one. One thread.
class StepAhead final {
 public:
  // When to begin with the plan, while the device computes a step with `work` since `begin`. In the
  // past, which means at once, when the time of the step is not known.
  Time Due(const StepWork& work, Time begin) const {
    if (work.prompt_tokens > 0 || work.decodes != decodes_) return Time::min();
    return begin + device_time_ - host_time_ - kMargin;
  }

  // The host planned and issued a step in this time. A slow step counts at once, and is forgotten
  // over the next ones.
  void Issued(Duration took) { host_time_ = std::max(took, (7 * host_time_ + took) / 8); }

  // The device computed a step in this time. Must not contain a wait for the host: with it, the
  // next step would be planned later, the device would wait longer, and so on without end.
  void Ended(const StepWork& work, Duration took) {
    if (work.prompt_tokens > 0) return;
    decodes_ = work.decodes;
    device_time_ = took;
  }

 private:
  // For threads that wake up late, and for steps that are shorter than the last one.
  static constexpr Duration kMargin = std::chrono::microseconds(600);

  int32_t decodes_ = 0;  // rows of the last decode step
  Duration device_time_{};
  Duration host_time_ = std::chrono::microseconds(100);
};

}  // namespace baton
