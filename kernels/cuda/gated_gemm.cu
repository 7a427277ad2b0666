#include "kernels/cuda/few_rows.h"
#include "kernels/cuda/gated_gemm.h"
#include "kernels/cuda/gated_gemm_kernel.cuh"

namespace baton::cuda {
namespace {

using Kernel = void (*)(GatedArguments);

template <int kRowBlocks, int kColumns>
Kernel KernelOf() {
  if constexpr (kColumns > GatedMostColumns(kRowBlocks)) {
    return nullptr;  // no plan has it
  } else {
    return GatedKernel<kRowBlocks, kColumns>;
  }
}

template <int kRowBlocks>
Kernel KernelOf(int32_t columns) {
  switch (columns) {
    case 64:
      return KernelOf<kRowBlocks, 64>();
    case 96:
      return KernelOf<kRowBlocks, 96>();
    case 112:
      return KernelOf<kRowBlocks, 112>();
    case 128:
      return KernelOf<kRowBlocks, 128>();
    case 192:
      return KernelOf<kRowBlocks, 192>();
    case 224:
      return KernelOf<kRowBlocks, 224>();
    default:
      return KernelOf<kRowBlocks, 256>();
  }
}

Kernel KernelOf(const GatedPlan& plan) {
  switch (plan.row_blocks) {
    case 1:
      return KernelOf<1>(plan.columns);
    case 2:
      return KernelOf<2>(plan.columns);
    case 3:
      return KernelOf<3>(plan.columns);
    default:
      return KernelOf<4>(plan.columns);
  }
}

}  // namespace

bool GatedGemmTakes(const Product& product) {
  return product.silu_mul && product.x_dtype == DType::kBF16 &&
         product.weight_dtype == DType::kBF16 && product.out_dtype == DType::kBF16 &&
         product.rows >= 1 && product.rows <= kGatedMostRows && product.k > 0 &&
         product.k % kSpanNumbers == 0 && product.n > 0 && product.n % 16 == 0 &&
         product.norm_weight == nullptr && product.bias == nullptr && !product.accumulate &&
         product.x_stride % 8 == 0 && product.out_stride % 2 == 0 && Aligned(product.x, 16) &&
         Aligned(product.weight, 16) && Aligned(product.out, 4);
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
  a.out = static_cast<__nv_bfloat16*>(product.out);
  a.out_stride = product.out_stride;
  a.rows = product.rows;
  a.outputs = product.n / 2;
  a.plan = plan;
  cudaError_t error = DescribeBoxes(WeightOf(product), {.rows = plan.columns / 2}, &a.weight);
  if (error != cudaSuccess) return error;
  error = DescribeBoxes(XOf(product), {.rows = plan.x_rows}, &a.x);
  if (error != cudaSuccess) return error;
  const Kernel kernel = KernelOf(plan);
  error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, plan.shared_bytes);
  if (error != cudaSuccess) return error;
  const OverlappedLaunch launch(dim3(static_cast<unsigned>(plan.clusters * plan.cluster)),
                                dim3(static_cast<unsigned>(GatedThreads(plan.row_blocks))),
                                static_cast<size_t>(plan.shared_bytes),
                                stream,
                                plan.cluster);
  return cudaLaunchKernelEx(launch.config(), kernel, a);
}

}  // namespace baton::cuda
