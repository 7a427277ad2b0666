#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/gemm/gemm_problem.h"

namespace baton::cuda {

// Whether LaunchGemv can compute `problem` with thread blocks of `block_shared_bytes` bytes of
// shared memory: one row of bf16, a k that is a multiple of 512 and fits beside the rings, and no
// bias together with silu_mul.
bool GemvSupports(const GemmProblem& problem, int32_t block_shared_bytes);

// Launches a GEMM of one row on `sm_count` SMs, bound by the read of the weight. Weights stream
// through rings in shared memory, which fill before the previous kernel has finished.
cudaError_t LaunchGemv(const GemmProblem& problem, int sm_count, cudaStream_t stream);

}  // namespace baton::cuda
