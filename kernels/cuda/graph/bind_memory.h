#pragma once

#include <cstddef>
#include <vector>

#include "kernels/cuda/graph/step_ops.h"
#include "kernels/cuda/graph/value_space.h"

namespace baton::cuda {

// How much memory a step needs.
struct StepMemory {
  size_t bytes = 0;
  size_t in_use = 0;  // the most that is in use during one op
};

// Lets the ops of a step, after all passes, use memory from `base` on where they use blocks of
// `space`. Blocks that are not needed at the same time share memory. `base` is where the results
// are.
StepMemory BindMemory(std::vector<StepOp>& ops, const ValueSpace& space, std::byte* base);

}  // namespace baton::cuda
