#pragma once

#include <array>
#include <cstdint>

#include "common/base/clock.h"

namespace baton {

// The properties of a step on which its time depends. A row of one token reads its context at
// memory bandwidth; the tokens of a chunk share the keys and values that they read.
struct StepWork {
  int32_t decodes = 0;         // rows of one token
  int64_t decode_context = 0;  // sum over these rows of the positions that each attends to
  int32_t prompt_tokens = 0;   // tokens in chunks
  int64_t prompt_context = 0;  // sum over these tokens of the positions that each attends to

  // The work of `n` steps like this one.
  StepWork Times(int32_t n) const {
    return {decodes * n, decode_context * n, prompt_tokens * n, prompt_context * n};
  }
};

// Predicts the time of a step as a + b·decodes + c·decode_context + d·prompt_tokens +
// e·prompt_context milliseconds. The terms are fitted to the steps that ran, by non-negative least
// squares with exponentially decaying weights. Steps with prompts and steps without are summed
// separately, so that many steps of one kind do not displace the few of the other. The time of a
// step far slower than predicted (an outlier) is clamped to a multiple of the prediction. Until
// enough steps with long contexts were observed, the context terms are bounded: c is 0, and e is a
// small fraction of d. Belongs to one thread.
class StepTimeModel final {
 public:
  struct Fit {
    double base_ms = 0;
    double decode_ms = 0;
    double decode_context_ms = 0;
    double prompt_token_ms = 0;  // 0, like prompt_context_ms, before the first step with a prompt
    double prompt_context_ms = 0;
  };

  void Observe(const StepWork& work, Duration took);
  const Fit& fit() const { return fit_; }
  double PredictMs(const StepWork& work) const;
  // The largest number of prompt tokens in one observed step.
  int32_t max_prompt_tokens() const { return max_prompt_tokens_; }

 private:
  static constexpr int kTerms = 5;
  // Exponentially weighted sums of x·xᵀ and x·y. Each term of x is scaled by a unit of its own.
  struct Sums {
    std::array<std::array<double, kTerms>, kTerms> xx{};
    std::array<double, kTerms> xy{};
    int64_t steps = 0;

    void Scale(double factor);
    // Makes term `to` the coefficient of x[to] + factor · x[from].
    void Join(int to, int from, double factor);
  };

  // The number of steps with long contexts, from which a context term can be fitted, by kind of
  // row.
  struct LongSteps {
    int64_t decodes = 0;
    int64_t prompts = 0;
  };

  static std::array<double, kTerms> SolveFor(const Sums& sums,
                                             const std::array<bool, kTerms>& used);
  static std::array<double, kTerms> SolveNonNegative(const Sums& sums,
                                                     std::array<bool, kTerms> used);
  void Solve();

  Sums decodes_;  // steps without a prompt
  Sums prompts_;  // steps with a prompt
  LongSteps long_steps_;
  int32_t max_prompt_tokens_ = 0;
  Fit fit_;
};

}  // namespace baton
