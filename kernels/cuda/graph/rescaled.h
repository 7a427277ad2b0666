#pragma once

#include <cstddef>
#include <optional>

#include "kernels/cuda/graph/op_graph.h"

namespace baton::cuda {

// An op that only applies the scales of an FP8 GEMM to its result, for one reader.
struct Rescaled {
  size_t rescale = 0;  // the number of the RescaleOp
  OutputScales scales{};
};
// Nothing if `x`, an operand of op `reader`, is no such result.
std::optional<Rescaled> RescaledOperand(const OpGraph& graph, size_t reader, const Tensor& x);

// Lets op `reader` apply these scales itself: stores them in `scales`, and removes the RescaleOp.
// Leaves both as they are where `x` is no such result, or where it cannot be rescaled later.
void FuseScalesOf(OpGraph& graph, size_t reader, const Tensor& x, OutputScales& scales);

}  // namespace baton::cuda
