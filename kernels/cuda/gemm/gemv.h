#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/gemm/gemm_problem.h"

namespace baton::cuda {

// Whether LaunchGemv can do `product`: one row, and inputs in whole pieces.
bool GemvSupports(const GemmProblem& problem);

// A product of one row, on `processors` multiprocessors: bound by reading the weight once. Weights
// stream through rings of shared memory that fill before the predecessor has finished.
cudaError_t LaunchGemv(const GemmProblem& problem, int sm_count, cudaStream_t stream);

}  // namespace baton::cuda
