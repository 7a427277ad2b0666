#pragma once

#include <array>
#include <cstdint>

#include "common/base/clock.h"

namespace baton {

// How long a step takes, a + b·tokens + c·token_context milliseconds, learnt from the steps that
// ran: least squares in which older steps count exponentially less, with a, b, c ≥ 0. A step far
// slower than predicted (the machine did something else) counts only as far as it is believable.
// One thread.
class StepTimeModel final {
 public:
  struct Fit {
    double base_ms = 0;
    double token_ms = 0;
    double token_context_ms = 0;
  };

  // One step of `tokens` tokens that saw `token_context` positions in all.
  void Observe(int32_t tokens, int64_t token_context, Duration took);
  const Fit& fit() const { return fit_; }
  double PredictMs(int32_t tokens, int64_t token_context) const;

 private:
  void Solve();

  static constexpr int kTerms = 3;
  // Exponentially weighted sums of x·xᵀ and x·y, x in units near 1.
  std::array<std::array<double, kTerms>, kTerms> xx_{};
  std::array<double, kTerms> xy_{};
  int64_t steps_ = 0;
  Fit fit_;
};

}  // namespace baton
