#include "common/engine/step_time.h"

#include <algorithm>
#include <cmath>

namespace baton {
namespace {

constexpr double kForget = 0.995;  // a step's weight after each later one
constexpr double kOutlier = 4;     // times the prediction: the most a step is believed to take
constexpr int64_t kTrusted = 32;   // steps before predictions are trusted to judge outliers
constexpr double kRidge = 1e-6;
// Units that bring the three terms near 1.
constexpr double kTokenUnit = 64;
constexpr double kContextUnit = 64 * 512;

// Solves the symmetric system restricted to the terms in `used` by Gaussian elimination; the ridge
// keeps it regular. Terms not used are 0.
std::array<double, 3> SolveFor(const std::array<std::array<double, 3>, 3>& xx,
                               const std::array<double, 3>& xy,
                               const std::array<bool, 3>& used) {
  std::array<std::array<double, 4>, 3> m{};
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) m[i][j] = used[i] && used[j] ? xx[i][j] : 0;
    m[i][i] = used[i] ? m[i][i] + kRidge : 1;
    m[i][3] = used[i] ? xy[i] : 0;
  }
  for (int i = 0; i < 3; ++i) {
    for (int j = i + 1; j < 3; ++j) {
      const double factor = m[j][i] / m[i][i];
      for (int k = i; k < 4; ++k) m[j][k] -= factor * m[i][k];
    }
  }
  std::array<double, 3> x{};
  for (int i = 2; i >= 0; --i) {
    x[i] = m[i][3];
    for (int k = i + 1; k < 3; ++k) x[i] -= m[i][k] * x[k];
    x[i] /= m[i][i];
  }
  return x;
}

}  // namespace

double StepTimeModel::PredictMs(int32_t tokens, int64_t token_context) const {
  return fit_.base_ms + fit_.token_ms * tokens +
         fit_.token_context_ms * static_cast<double>(token_context);
}

void StepTimeModel::Observe(int32_t tokens, int64_t token_context, Duration took) {
  double ms = std::max(ToMillis(took), 0.0);
  if (steps_ >= kTrusted) ms = std::min(ms, kOutlier * PredictMs(tokens, token_context) + 0.01);
  ++steps_;
  const std::array<double, kTerms> x = {
      1, tokens / kTokenUnit, static_cast<double>(token_context) / kContextUnit};
  for (int i = 0; i < kTerms; ++i) {
    for (int j = 0; j < kTerms; ++j) xx_[i][j] = xx_[i][j] * kForget + x[i] * x[j];
    xy_[i] = xy_[i] * kForget + x[i] * ms;
  }
  Solve();
}

// Non-negative least squares for three terms: the most negative term is left out, and so on.
void StepTimeModel::Solve() {
  std::array<bool, kTerms> used = {true, true, true};
  std::array<double, kTerms> terms{};
  for (int round = 0; round < kTerms; ++round) {
    terms = SolveFor(xx_, xy_, used);
    const auto lowest = std::ranges::min_element(terms);
    if (*lowest >= 0) break;
    used[lowest - terms.begin()] = false;
  }
  for (double& term : terms) term = std::isfinite(term) ? std::max(term, 0.0) : 0;
  fit_ = {terms[0], terms[1] / kTokenUnit, terms[2] / kContextUnit};
}

}  // namespace baton
