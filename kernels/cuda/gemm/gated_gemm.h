#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/gemm/gated_plan.h"
#include "kernels/cuda/gemm/gemm_problem.h"

// Products with silu_mul of up to 256 rows for Hopper, of operands in bf16 or E4M3: bound by
// reading the weight or, towards 256, by tensor cores. Besides the product, cuBLASLt's way has to
// write and read gate and up.
namespace baton::cuda {

bool GatedGemmSupports(const GemmProblem& problem);

// What the present device allows.
GatedLimits FindGatedLimits(int sm_count);

// Of a product that GatedGemmSupports. The next kernel on the stream may start early.
cudaError_t LaunchGatedGemm(const GemmProblem& problem, int sm_count, cudaStream_t stream);
cudaError_t LaunchGatedGemm(const GemmProblem& problem, const GatedPlan& plan, cudaStream_t stream);

}  // namespace baton::cuda
