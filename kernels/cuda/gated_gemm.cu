#include "kernels/cuda/few_rows.h"
#include "kernels/cuda/gated_gemm.h"
#include "kernels/cuda/gated_gemm_kernel.cuh"

namespace baton::cuda {

bool GatedGemmTakes(const Product& product) {
  return OperandsFit(product) && product.silu_mul && product.out_dtype == DType::kBF16 &&
         product.rows <= kGatedMostRows && product.n % 16 == 0 && product.bias == nullptr &&
         !product.accumulate && product.out_stride % 2 == 0 && Aligned(product.out, 4);
}

GatedLimits FindGatedLimits(int processors) {
  const FewRowsLimits limits = FindFewRowsLimits(processors);
  return {.blocks = limits.blocks, .clusters_of_2 = limits.clusters_of_2};
}

cudaError_t LaunchGatedGemm(const Product& product, int processors, cudaStream_t stream) {
  return LaunchGatedGemm(product, PlanGatedGemm(product, FindGatedLimits(processors)), stream);
}

cudaError_t LaunchGatedGemm(const Product& product, const GatedPlan& plan, cudaStream_t stream) {
  GatedArguments a;
  a.x_scales = product.x_scales;
  a.weight_scales = product.weight_scales;
  a.out = static_cast<__nv_bfloat16*>(product.out);
  a.out_stride = product.out_stride;
  a.rows = product.rows;
  a.outputs = product.n / 2;
  a.plan = plan;
  cudaError_t error = DescribeBoxes(WeightOf(product), {.rows = plan.columns / 2}, &a.weight);
  if (error != cudaSuccess) return error;
  error = DescribeBoxes(XOf(product), {.rows = plan.x_rows}, &a.x);
  if (error != cudaSuccess) return error;
  const GatedKernelPointer kernel = product.weight_dtype == DType::kF8
                                        ? QuantizedGatedKernelOf(plan)
                                        : GatedKernelOf<__nv_bfloat16>(plan);
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
