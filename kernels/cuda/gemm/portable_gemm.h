#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/gemm/gemm_problem.h"

namespace baton::cuda {

// Computes every GEMM of operands in bf16, and of unscaled operands in FP8 on sm_89 and newer, with
// mma.sync. An accumulator adds its products in ascending k, whatever the number of rows
// (sequential_gemm.h).
cudaError_t LaunchPortableGemm(const GemmProblem& problem, cudaStream_t stream);

}  // namespace baton::cuda
