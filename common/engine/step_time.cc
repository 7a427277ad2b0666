#include "common/engine/step_time.h"

#include <algorithm>
#include <cmath>

namespace baton {
namespace {

constexpr double kForget = 0.995;  // factor on a step's weight for each later step of its kind
// Factor for each later step of the other kind, while the sums weigh more than one step. So the
// terms that both kinds share follow the newer steps, and terms that only one kind has are kept.
constexpr double kForgetOther = 0.9999;
constexpr double kOutlier = 4;    // a step time is clamped to this multiple of the prediction
constexpr int64_t kTrusted = 32;  // steps of a kind before its outliers are clamped
constexpr double kRidge = 1e-6;
// The units of the terms of x. When all steps are alike, so that the terms cannot be separated,
// these units make the fit ascribe the time of a prompt to its tokens and that of a decode to the
// base.
constexpr double kDecodeUnit = 256;
constexpr double kDecodeContextUnit = 512 * 1024;
constexpr double kPromptUnit = 64;
constexpr double kPromptContextUnit = 2048 * 1024;
// A step whose rows attend to more than kLongContext positions on average has a long context. A
// context term is fitted freely only after kEnoughLong such steps. Fitted to short contexts it
// would be noise, which the quadratic cost of a long prompt multiplies by thousands.
constexpr int64_t kLongContext = 512;
constexpr int64_t kEnoughLong = 32;
// Before that, the upper bound of the cost of one position relative to the cost of a prompt token
// without context. Of a transformer's multiplications it is about 1 / (6 · width).
constexpr double kMaxContextShare = 1.0 / 1024;
constexpr double kMaxContextTerm = kMaxContextShare * kPromptContextUnit / kPromptUnit;

}  // namespace

void StepTimeModel::Sums::Scale(double factor) {
  for (auto& row : xx) {
    for (double& sum : row) sum *= factor;
  }
  for (double& sum : xy) sum *= factor;
}

void StepTimeModel::Sums::Join(int to, int from, double factor) {
  for (int i = 0; i < kTerms; ++i) xx[to][i] += factor * xx[from][i];
  for (int i = 0; i < kTerms; ++i) xx[i][to] += factor * xx[i][from];
  xy[to] += factor * xy[from];
}

double StepTimeModel::PredictMs(const StepWork& work) const {
  return fit_.base_ms + fit_.decode_ms * work.decodes +
         fit_.decode_context_ms * static_cast<double>(work.decode_context) +
         fit_.prompt_token_ms * work.prompt_tokens +
         fit_.prompt_context_ms * static_cast<double>(work.prompt_context);
}

void StepTimeModel::Observe(const StepWork& work, Duration took) {
  const bool prompt = work.prompt_tokens > 0;
  Sums& sums = prompt ? prompts_ : decodes_;
  Sums& other = prompt ? decodes_ : prompts_;
  double ms = std::max(ToMillis(took), 0.0);
  if (sums.steps >= kTrusted) ms = std::min(ms, kOutlier * PredictMs(work) + 0.01);
  ++sums.steps;
  sums.Scale(kForget);
  if (other.xx[0][0] > 1) other.Scale(kForgetOther);
  const std::array<double, kTerms> x = {
      1,
      work.decodes / kDecodeUnit,
      static_cast<double>(work.decode_context) / kDecodeContextUnit,
      work.prompt_tokens / kPromptUnit,
      static_cast<double>(work.prompt_context) / kPromptContextUnit};
  for (int i = 0; i < kTerms; ++i) {
    for (int j = 0; j < kTerms; ++j) sums.xx[i][j] += x[i] * x[j];
    sums.xy[i] += x[i] * ms;
  }
  if (work.decode_context > kLongContext * work.decodes) ++long_steps_.decodes;
  if (work.prompt_context > kLongContext * work.prompt_tokens) ++long_steps_.prompts;
  max_prompt_tokens_ = std::max(max_prompt_tokens_, work.prompt_tokens);
  Solve();
}

// Solves the symmetric system for the terms in `used` by Gaussian elimination; the ridge keeps the
// matrix regular. The other terms are 0.
std::array<double, StepTimeModel::kTerms> StepTimeModel::SolveFor(
    const Sums& sums, const std::array<bool, kTerms>& used) {
  std::array<std::array<double, kTerms + 1>, kTerms> m{};
  for (int i = 0; i < kTerms; ++i) {
    for (int j = 0; j < kTerms; ++j) m[i][j] = used[i] && used[j] ? sums.xx[i][j] : 0;
    m[i][i] = used[i] ? m[i][i] + kRidge : 1;
    m[i][kTerms] = used[i] ? sums.xy[i] : 0;
  }
  for (int i = 0; i < kTerms; ++i) {
    for (int j = i + 1; j < kTerms; ++j) {
      const double factor = m[j][i] / m[i][i];
      for (int k = i; k <= kTerms; ++k) m[j][k] -= factor * m[i][k];
    }
  }
  std::array<double, kTerms> x{};
  for (int i = kTerms - 1; i >= 0; --i) {
    x[i] = m[i][kTerms];
    for (int k = i + 1; k < kTerms; ++k) x[i] -= m[i][k] * x[k];
    x[i] /= m[i][i];
  }
  return x;
}

// Non-negative least squares: removes the most negative term and solves again until none is
// negative.
std::array<double, StepTimeModel::kTerms> StepTimeModel::SolveNonNegative(
    const Sums& sums, std::array<bool, kTerms> used) {
  std::array<double, kTerms> terms{};
  for (int round = 0; round < kTerms; ++round) {
    terms = SolveFor(sums, used);
    const auto lowest = std::ranges::min_element(terms);
    if (*lowest >= 0) break;
    used[lowest - terms.begin()] = false;
  }
  for (double& term : terms) term = std::isfinite(term) ? std::max(term, 0.0) : 0;
  return terms;
}

void StepTimeModel::Solve() {
  Sums all = decodes_;
  for (int i = 0; i < kTerms; ++i) {
    for (int j = 0; j < kTerms; ++j) all.xx[i][j] += prompts_.xx[i][j];
    all.xy[i] += prompts_.xy[i];
  }
  std::array<bool, kTerms> used;
  used.fill(true);
  used[2] = long_steps_.decodes >= kEnoughLong;
  std::array<double, kTerms> terms = SolveNonNegative(all, used);
  if (long_steps_.prompts < kEnoughLong && terms[4] > kMaxContextTerm * terms[3]) {
    // The best fit within the bound is at the bound.
    used[4] = false;
    all.Join(3, 4, kMaxContextTerm);
    terms = SolveNonNegative(all, used);
    terms[4] = kMaxContextTerm * terms[3];
  }
  fit_ = {terms[0],
          terms[1] / kDecodeUnit,
          terms[2] / kDecodeContextUnit,
          terms[3] / kPromptUnit,
          terms[4] / kPromptContextUnit};
}

}  // namespace baton
