#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/gemm/gemm_problem.h"
#include "kernels/cuda/gemm/skinny_plan.h"

namespace baton::cuda {

// Whether LaunchSkinnyGemm can do `product`, on a device of compute capability 9.0: operands of one
// type, in E4M3 with scales for both; at most 64 rows that need no norm, k in whole pieces of 128
// bytes, a number of outputs that 8 divides, and memory aligned to 16 bytes.
bool SkinnyGemmSupports(const GemmProblem& problem);

// A product of few rows: bound by reading the weight once. Weights stream through a ring of shared
// memory that fills before the predecessor has finished. Equal products give equal bits.
cudaError_t LaunchSkinnyGemm(const GemmProblem& problem, int sm_count, cudaStream_t stream);

// The same with a plan for this product and device.
cudaError_t LaunchSkinnyGemm(const GemmProblem& problem,
                             const SkinnyPlan& plan,
                             cudaStream_t stream);

// What the current device allows, of which `processors` multiprocessors are to be used.
SkinnyLimits FindSkinnyLimits(int sm_count);

}  // namespace baton::cuda
