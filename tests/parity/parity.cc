#include "tests/parity/parity.h"

namespace baton::parity {

std::vector<Case> AllCases() {
  std::vector<Case> all;
  for (const auto& part :
       {MatMulCases(), RowCases(), AttentionCases(), SamplingCases(), IndependenceCases()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace baton::parity
