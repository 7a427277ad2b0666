#include <algorithm>

#include "kernels/cuda/few_rows.h"
#include "kernels/cuda/few_rows_kernel.cuh"
#include "kernels/cuda/tensor_map.h"

namespace baton::cuda {
namespace {

OverlappedLaunch LaunchOf(const FewRowsPlan& plan, int32_t shared_bytes, cudaStream_t stream) {
  return {dim3(static_cast<unsigned>(plan.clusters * plan.cluster)),
          dim3(FewRowsThreads(plan.teams)),
          static_cast<size_t>(shared_bytes),
          stream,
          plan.cluster};
}

// Clusters of blocks with nearly all shared memory that run at a time; 0 when that is unknown.
int32_t CountClusters(int32_t cluster) {
  constexpr int32_t kShared = 200 << 10;
  const FewRowsKernelPointer kernel = FewRowsKernel<__nv_bfloat16, 8, 1, false, 1>;
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

bool FewRowsTakes(const Product& product) {
  const int32_t halves = product.silu_mul ? 2 : 1;
  const bool f32 = product.out_dtype == DType::kF32;
  return OperandsFit(product) && product.rows <= kFewRowsMost && product.n % (8 * halves) == 0 &&
         product.out_stride % 4 == 0 && Aligned(product.out, f32 ? 16 : 8) &&
         (!product.silu_mul || product.bias == nullptr);
}

FewRowsLimits FindFewRowsLimits(int processors) {
  // A process uses devices of one kind.
  static const int32_t of_2 = CountClusters(2);
  static const int32_t of_4 = CountClusters(4);
  return {.blocks = processors,
          .clusters_of_2 = std::min(of_2, processors / 2),
          .clusters_of_4 = std::min(of_4, processors / 4)};
}

cudaError_t LaunchFewRows(const Product& product, int processors, cudaStream_t stream) {
  return LaunchFewRows(product, PlanFewRows(product, FindFewRowsLimits(processors)), stream);
}

cudaError_t LaunchFewRows(const Product& product, const FewRowsPlan& plan, cudaStream_t stream) {
  FewRowsArguments a;
  a.x_scales = product.x_scales;
  a.weight_scales = product.weight_scales;
  a.bias = product.bias;
  a.out = product.out;
  a.out_stride = product.out_stride;
  a.rows = product.rows;
  a.outputs = product.silu_mul ? product.n / 2 : product.n;
  a.k_spans = product.k / SpanNumbers(product);
  a.f32 = product.out_dtype == DType::kF32;
  a.accumulate = product.accumulate;
  a.plan = plan;
  cudaError_t error =
      DescribeBoxes(WeightOf(product), {.rows = plan.tile_outputs, .spans = plan.spans}, &a.weight);
  if (error != cudaSuccess) return error;
  error = DescribeBoxes(XOf(product), {.rows = plan.row_group, .spans = plan.spans}, &a.x);
  if (error != cudaSuccess) return error;
  const FewRowsKernelPointer kernel = product.weight_dtype == DType::kF8
                                          ? QuantizedFewRowsKernelOf(plan, product.silu_mul)
                                          : FewRowsKernelOf<__nv_bfloat16>(plan, product.silu_mul);
  error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, plan.shared_bytes);
  if (error != cudaSuccess) return error;
  const OverlappedLaunch launch = LaunchOf(plan, plan.shared_bytes, stream);
  return cudaLaunchKernelEx(launch.config(), kernel, a);
}

}  // namespace baton::cuda
