#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/gemm/few_outputs_plan.h"
#include "kernels/cuda/gemm/gemm_problem.h"

// GEMMs for Hopper of up to 256 rows in bf16, with few outputs and a long k, in the order of
// sequential_gemm.h. Kernels that keep this order may not divide k, and with tiles of the usual
// size they use a quarter of the SMs then. Here the tiles are so small that each SM has one.
namespace baton::cuda {

// Launches a GEMM with a plan that was made for it. The next kernel on the stream may start before
// this one ends (launch.cuh).
cudaError_t LaunchFewOutputsGemm(const GemmProblem& problem,
                                 const FewOutputsPlan& plan,
                                 cudaStream_t stream);

}  // namespace baton::cuda
