#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/cluster/request.h"

namespace baton {

// Adds the hidden state of one row to `pooled`, which is empty before the first. The rows come in
// the order of their positions, whatever the chunks of the prompt are, so that the sums of a mean
// have the same bits.
void Pool(Pooling pooling, std::span<const float> state, std::vector<float>& pooled);

// Completes the vector of a prompt of `tokens` tokens. False when it has a number that is not
// finite.
bool FinishPooling(Pooling pooling, int32_t tokens, std::vector<float>& pooled);

}  // namespace baton
