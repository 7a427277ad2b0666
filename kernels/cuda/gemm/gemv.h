#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/gemm/gemm_problem.h"

namespace baton::cuda {

// Launches a GEMM that KernelId::kGemv computes (kernel_table.h) on `sm_count` SMs, bound by the
// read of the weight. Weights stream through rings in shared memory, which fill before the previous
// kernel has finished.
cudaError_t LaunchGemv(const GemmProblem& problem, int sm_count, cudaStream_t stream);

}  // namespace baton::cuda
