#include "tests/parity/parity.h"

namespace baton::parity {

Tolerance ToleranceFor(DType dtype) {
  if (dtype == DType::kF32) return {};
  // One rounding to the 8 significant bits of bfloat16 has a relative error of at most 2⁻⁹, and
  // results may be rounded twice. Attention also rounds its probabilities.
  return {.attention = 1e-2, .stored = 0x1p-8};
}

std::vector<Case> ResultCases() {
  std::vector<Case> all;
  for (const auto& part : {LayerCases(),
                           MatMulCases(),
                           RowCases(),
                           ExpertCases(),
                           FamilyCases(),
                           RoutingCases(),
                           LatentCases(),
                           SparseCases(),
                           RecurrentCases(),
                           AttentionCases(),
                           SamplingCases(),
                           WideSamplingCases()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

std::vector<Case> AllCases() {
  std::vector<Case> all = ResultCases();
  const std::vector<Case> independence = IndependenceCases();
  all.insert(all.end(), independence.begin(), independence.end());
  return all;
}

}  // namespace baton::parity
