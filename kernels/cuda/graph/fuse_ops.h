#pragma once

#include <vector>

#include "kernels/cuda/gemm/gemm_fusions.h"
#include "kernels/cuda/graph/step_ops.h"

namespace baton::cuda {

// Fuses the ops of a step that one kernel can compute (passes.h). When `gemm` is
// deterministic, only by passes that keep the bits: the others depend on the number of rows.
void FuseOps(std::vector<StepOp>& ops, const GemmFusions& gemm);

}  // namespace baton::cuda
