#include <algorithm>

#include "kernels/cuda/gemm/skinny_gemm.h"
#include "kernels/cuda/gemm/skinny_kernel.cuh"
#include "kernels/cuda/gemm/tensor_map.h"

namespace baton::cuda {
namespace {

OverlappedLaunch LaunchOf(const SkinnyPlan& plan, int32_t shared_bytes, cudaStream_t stream) {
  return {dim3(static_cast<unsigned>(plan.clusters * plan.cluster)),
          dim3(SkinnyThreads(plan.warp_groups)),
          static_cast<size_t>(shared_bytes),
          stream,
          plan.cluster};
}

// The number of clusters that run at a time when each thread block takes nearly all shared memory
// of an SM; 0 when that is unknown.
int32_t CountClusters(int32_t cluster) {
  constexpr int32_t kShared = 200 << 10;
  const SkinnyKernelPointer kernel = SkinnyKernel<__nv_bfloat16, 8, 1, false, 1>;
  int count = 0;
  const OverlappedLaunch launch = LaunchOf({.cluster = cluster}, kShared, nullptr);
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared) !=
          cudaSuccess ||
      cudaOccupancyMaxActiveClusters(&count, kernel, launch.config()) != cudaSuccess) {
    return 0;
  }
  return count;
}

}  // namespace

SkinnyLimits FindSkinnyLimits(int sm_count) {
  // Computed once, because all devices of a process are of one kind.
  static const int32_t of_2 = CountClusters(2);
  static const int32_t of_4 = CountClusters(4);
  return {.blocks = sm_count,
          .clusters_of_2 = std::min(of_2, sm_count / 2),
          .clusters_of_4 = std::min(of_4, sm_count / 4)};
}

cudaError_t LaunchSkinnyGemm(const GemmProblem& problem, int sm_count, cudaStream_t stream) {
  return LaunchSkinnyGemm(problem, PlanSkinnyGemm(problem, FindSkinnyLimits(sm_count)), stream);
}

cudaError_t LaunchSkinnyGemm(const GemmProblem& problem,
                             const SkinnyPlan& plan,
                             cudaStream_t stream) {
  SkinnyArguments a;
  a.x_scales = problem.x_scales;
  a.weight_scales = problem.weight_scales;
  a.bias = problem.bias;
  a.out = problem.out;
  a.out_stride = problem.out_stride;
  a.rows = problem.rows;
  a.outputs = problem.silu_mul ? problem.n / 2 : problem.n;
  a.k_spans = problem.k / SpanNumbers(problem);
  a.f32 = problem.out_dtype == DType::kF32;
  a.accumulate = problem.accumulate;
  a.plan = plan;
  cudaError_t error =
      MakeTensorMap(WeightOf(problem), {.rows = plan.tile_outputs, .spans = plan.spans}, &a.weight);
  if (error != cudaSuccess) return error;
  error = MakeTensorMap(XOf(problem), {.rows = plan.row_group, .spans = plan.spans}, &a.x);
  if (error != cudaSuccess) return error;
  const SkinnyKernelPointer kernel = problem.weight_dtype == DType::kFp8
                                         ? Fp8SkinnyKernelFor(plan, problem.silu_mul)
                                         : SkinnyKernelFor<__nv_bfloat16>(plan, problem.silu_mul);
  error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, plan.shared_bytes);
  if (error != cudaSuccess) return error;
  const OverlappedLaunch launch = LaunchOf(plan, plan.shared_bytes, stream);
  return cudaLaunchKernelEx(launch.config(), kernel, a);
}

}  // namespace baton::cuda
