#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/gemm/gated_plan.h"
#include "kernels/cuda/gemm/gemm_problem.h"

// Gated GEMMs (silu_mul) of up to 256 rows for Hopper, with operands in bf16 or FP8. They are bound
// by the read of the weight or, near 256 rows, by the tensor cores. With cuBLASLt, gate and up are
// also written to memory and read again.
namespace baton::cuda {

// Whether LaunchGatedGemm can compute `problem` on sm_90a (KernelId::kGatedGemm).
bool GatedGemmSupports(const GemmProblem& problem);

// The limits of the current device when `sm_count` of its SMs are used.
GatedLimits FindGatedLimits(int sm_count);

// Launches a GEMM that GatedGemmSupports, with the given plan or with one of PlanGatedGemm. The
// next kernel on the stream may start before this one ends (launch.cuh).
cudaError_t LaunchGatedGemm(const GemmProblem& problem, int sm_count, cudaStream_t stream);
cudaError_t LaunchGatedGemm(const GemmProblem& problem, const GatedPlan& plan, cudaStream_t stream);

}  // namespace baton::cuda
