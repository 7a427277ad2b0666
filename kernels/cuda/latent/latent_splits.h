#pragma once

#include <cstdint>
#include <span>

namespace baton::cuda {

// Rows of a step that see about the same number of positions.
struct LatentRows {
  int32_t count = 0;
  int32_t positions = 0;
};

// Where contexts are split for KernelId::kHopperLatents, with `slots` work tiles at a time: at
// multiples of the result, which is a multiple of kHopperLatentTokens. Chooses what ends first by a
// model of the kernel and of the combination of partial results.
int32_t ChooseLatentSplit(std::span<const LatentRows> rows, int32_t slots);

}  // namespace baton::cuda
