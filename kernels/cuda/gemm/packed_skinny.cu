#include "kernels/cuda/gemm/packed_skinny.h"
#include "kernels/cuda/gemm/packed_skinny_kernel.cuh"
#include "kernels/cuda/gemm/skinny_gemm.h"
#include "kernels/cuda/gemm/tensor_map.h"

namespace baton::cuda {
namespace {

PackedSkinnyPointer KernelOf(const PackedFormat& format, int32_t row_group) {
  switch (format.number) {
    case DType::kU4:
      return PackedSkinnyOfU4(format, row_group);
    case DType::kI8:
      return PackedSkinnyOfI8(format, row_group);
    case DType::kFp8:
      return PackedSkinnyOfFp8(format, row_group);
    default:
      return PackedSkinnyOfFp4(format, row_group);
  }
}

}  // namespace

PackedLimits FindPackedLimits(int sm_count) {
  PackedLimits limits;
  static_cast<SkinnyLimits&>(limits) = FindSkinnyLimits(sm_count);
  return limits;
}

cudaError_t LaunchPackedGemm(const GemmProblem& problem, int sm_count, cudaStream_t stream) {
  return LaunchPackedGemm(problem, PlanPackedGemm(problem, FindPackedLimits(sm_count)), stream);
}

cudaError_t LaunchPackedGemm(const GemmProblem& problem,
                             const SkinnyPlan& plan,
                             cudaStream_t stream) {
  PackedSkinnyArguments a;
  a.gemm.weight_scales = problem.weight_scales;
  a.gemm.bias = problem.bias;
  a.gemm.out = problem.out;
  a.gemm.out_stride = problem.out_stride;
  a.gemm.rows = problem.rows;
  a.gemm.outputs = problem.silu_mul ? problem.n / 2 : problem.n;
  a.gemm.k_spans = problem.k / kSpanNumbers;
  a.gemm.f32 = problem.out_dtype == DType::kF32;
  a.gemm.accumulate = problem.accumulate;
  a.gemm.plan = plan;
  a.weight = static_cast<const std::byte*>(problem.weight);
  a.format = problem.packed;
  a.chunks = static_cast<int32_t>(problem.packed.chunks(problem.k));
  a.half_tiles = static_cast<int32_t>(problem.packed.tiles(a.gemm.outputs));
  cudaError_t error =
      MakeTensorMap(XOf(problem), {.rows = plan.row_group, .spans = plan.spans}, &a.gemm.x);
  if (error != cudaSuccess) return error;
  const PackedSkinnyPointer kernel = KernelOf(problem.packed, plan.row_group);
  error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, plan.shared_bytes);
  if (error != cudaSuccess) return error;
  const OverlappedLaunch launch(dim3(static_cast<unsigned>(plan.clusters * plan.cluster)),
                                dim3(PackedThreads(plan.warp_groups)),
                                static_cast<size_t>(plan.shared_bytes),
                                stream,
                                plan.cluster);
  return cudaLaunchKernelEx(launch.config(), kernel, a);
}

}  // namespace baton::cuda
