#include "common/engine/pool_states.h"

#include <algorithm>
#include <cmath>

namespace baton {

void Pool(Pooling pooling, std::span<const float> state, std::vector<float>& pooled) {
  if (pooling == Pooling::kMean && !pooled.empty()) {
    for (size_t i = 0; i < state.size(); ++i) pooled[i] += state[i];
    return;
  }
  if (pooling == Pooling::kFirst && !pooled.empty()) return;
  pooled.assign(state.begin(), state.end());
}

bool FinishPooling(Pooling pooling, int32_t tokens, std::vector<float>& pooled) {
  if (pooling == Pooling::kMean) {
    for (float& number : pooled) number /= static_cast<float>(tokens);
  }
  return std::ranges::all_of(pooled, [](float number) { return std::isfinite(number); });
}

}  // namespace baton
