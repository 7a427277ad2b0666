#include "kernels/cuda/gemm/gated_gemm.h"
#include "kernels/cuda/gemm/gated_kernel.cuh"
#include "kernels/cuda/gemm/skinny_gemm.h"

namespace baton::cuda {

GatedLimits FindGatedLimits(int sm_count) {
  const SkinnyLimits limits = FindSkinnyLimits(sm_count);
  return {.blocks = limits.blocks, .clusters_of_2 = limits.clusters_of_2};
}

cudaError_t LaunchGatedGemm(const GemmProblem& problem, int sm_count, cudaStream_t stream) {
  return LaunchGatedGemm(problem, PlanGatedGemm(problem, FindGatedLimits(sm_count)), stream);
}

cudaError_t LaunchGatedGemm(const GemmProblem& problem,
                            const GatedPlan& plan,
                            cudaStream_t stream) {
  GatedArguments a;
  a.x_scales = problem.x_scales;
  a.weight_scales = problem.weight_scales;
  a.out = static_cast<__nv_bfloat16*>(problem.out);
  a.out_stride = problem.out_stride;
  a.rows = problem.rows;
  a.outputs = problem.n / 2;
  a.plan = plan;
  cudaError_t error = MakeTensorMap(WeightOf(problem), {.rows = plan.columns / 2}, &a.weight);
  if (error != cudaSuccess) return error;
  error = MakeTensorMap(XOf(problem), {.rows = plan.x_rows}, &a.x);
  if (error != cudaSuccess) return error;
  const GatedKernelPointer kernel = problem.weight_dtype == DType::kFp8
                                        ? Fp8GatedKernelFor(plan)
                                        : GatedKernelFor<__nv_bfloat16>(plan);
  error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, plan.shared_bytes);
  if (error != cudaSuccess) return error;
  const OverlappedLaunch launch(dim3(static_cast<unsigned>(plan.clusters * plan.cluster())),
                                dim3(static_cast<unsigned>(GatedThreads(plan.row_blocks))),
                                static_cast<size_t>(plan.shared_bytes),
                                stream,
                                plan.cluster());
  return cudaLaunchKernelEx(launch.config(), kernel, a);
}

}  // namespace baton::cuda
