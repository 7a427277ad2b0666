#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/attention/work_tiles.h"

namespace baton::cuda {

// Where contexts are split for KernelId::kHopperLatents, with `slots` work tiles at a time: at
// multiples of the result, which is a multiple of kHopperLatentTokens. Chooses what ends first by a
// model of the kernel and of the combination of partial results.
int32_t ChooseLatentSplit(std::span<const AttentionSequence> sequences, int32_t slots);

}  // namespace baton::cuda
