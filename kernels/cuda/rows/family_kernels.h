#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/rows/family_ops.h"

namespace baton::cuda {

// Runs an op of FamilyOps. The residual, logits and sums of squares are float32, other tensors
// bf16. Rows may have any number of columns; those of whole vectors of 8 numbers are faster. A
// row's bits depend on the row alone.
cudaError_t LaunchFamilyOp(const FamilyOp& op, cudaStream_t stream);

}  // namespace baton::cuda
