#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/gemm/gemm_problem.h"
#include "kernels/cuda/gemm/packed_skinny_plan.h"

namespace baton::cuda {

// Whether LaunchPackedGemm can compute `problem` on sm_90a (KernelId::kPackedGemm).
bool PackedGemmSupports(const GemmProblem& problem);

// Launches a skinny GEMM of a packed weight, bound by the read of the packed bytes. They stream
// through a ring in shared memory, which fills before the previous kernel has finished. Equal
// problems give equal bits.
cudaError_t LaunchPackedGemm(const GemmProblem& problem, int sm_count, cudaStream_t stream);

// The same with a plan that was made for this problem and device.
cudaError_t LaunchPackedGemm(const GemmProblem& problem,
                             const SkinnyPlan& plan,
                             cudaStream_t stream);

// The limits of the current device when `sm_count` of its SMs are used.
PackedLimits FindPackedLimits(int sm_count);

}  // namespace baton::cuda
