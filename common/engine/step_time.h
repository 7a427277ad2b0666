#pragma once

#include <array>
#include <cstdint>

#include "common/base/clock.h"

namespace baton {

// What a step computes, as far as its time depends on it. A row of one token reads its context at
// the speed of memory; the tokens of a chunk share what they read.
struct StepWork {
  int32_t decodes = 0;         // rows of one token
  int64_t decode_context = 0;  // Σ of the positions that they see
  int32_t prompt_tokens = 0;   // in chunks
  int64_t prompt_context = 0;  // Σ over these tokens of the positions that each sees
};

// How long a step takes, a + b·decodes + c·decode_context + d·prompt_tokens + e·prompt_context
// milliseconds, learnt from the steps that ran: least squares in which older steps count
// exponentially less, with no negative term. Steps with and without prompts are remembered apart,
// so that the many of one kind do not wash away what the few of the other told. A step far slower
// than predicted (the machine did something else) counts only as far as it is believable. The terms
// of contexts are bounded until long ones were seen often: that of decodes is 0, that of prompts a
// small part of what a token costs. One thread.
class StepTimeModel final {
 public:
  struct Fit {
    double base_ms = 0;
    double decode_ms = 0;
    double decode_context_ms = 0;
    double prompt_token_ms = 0;  // this and the next are 0 while no step with a prompt is known
    double prompt_context_ms = 0;
  };

  void Observe(const StepWork& work, Duration took);
  const Fit& fit() const { return fit_; }
  double PredictMs(const StepWork& work) const;
  // The most prompt tokens that one step had.
  int32_t most_prompt_tokens() const { return most_prompt_tokens_; }

 private:
  static constexpr int kTerms = 5;
  // Exponentially weighted sums of x·xᵀ and x·y, x in units of its own.
  struct Sums {
    std::array<std::array<double, kTerms>, kTerms> xx{};
    std::array<double, kTerms> xy{};
    int64_t steps = 0;

    void Scale(double factor);
    // Makes term `to` the coefficient of x[to] + factor · x[from].
    void Join(int to, int from, double factor);
  };

  // Steps that tell what a term of contexts is: the rows of its kind see long ones.
  struct LongSteps {
    int64_t decodes = 0;
    int64_t prompts = 0;
  };

  static std::array<double, kTerms> SolveFor(const Sums& sums,
                                             const std::array<bool, kTerms>& used);
  static std::array<double, kTerms> SolveNonNegative(const Sums& sums,
                                                     std::array<bool, kTerms> used);
  void Solve();

  Sums decodes_;  // of steps without a prompt
  Sums prompts_;  // of steps with one
  LongSteps long_steps_;
  int32_t most_prompt_tokens_ = 0;
  Fit fit_;
};

}  // namespace baton
