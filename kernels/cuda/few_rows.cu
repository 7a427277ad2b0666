#include <algorithm>

#include "kernels/cuda/few_rows.h"
#include "kernels/cuda/few_rows_kernel.cuh"
#include "kernels/cuda/tensor_map.h"

namespace baton::cuda {
namespace {

using Kernel = void (*)(FewRowsArguments);

template <int kGroup, int kMatrices, bool kPairs>
Kernel KernelOf(int32_t teams) {
  if constexpr (kMatrices == 1) {
    if (teams == 4) return FewRowsKernel<kGroup, 1, kPairs, 4>;
  }
  return teams == 1 ? FewRowsKernel<kGroup, kMatrices, kPairs, 1>
                    : FewRowsKernel<kGroup, kMatrices, kPairs, 2>;
}

template <int kGroup>
Kernel KernelOf(const FewRowsPlan& plan, bool pairs) {
  switch (plan.matrices) {
    case 1:
      return KernelOf<kGroup, 1, false>(plan.teams);
    case 2:
      return pairs ? KernelOf<kGroup, 2, true>(plan.teams) : KernelOf<kGroup, 2, false>(plan.teams);
    case 3:
      return KernelOf<kGroup, 3, false>(plan.teams);
    default:
      return pairs ? KernelOf<kGroup, 4, true>(plan.teams) : KernelOf<kGroup, 4, false>(plan.teams);
  }
}

Kernel KernelFor(const FewRowsPlan& plan, bool pairs) {
  switch (plan.row_group) {
    case 8:
      return KernelOf<8>(plan, pairs);
    case 16:
      return KernelOf<16>(plan, pairs);
    case 32:
      return KernelOf<32>(plan, pairs);
    default:
      return KernelOf<64>(plan, pairs);
  }
}

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
  const Kernel kernel = FewRowsKernel<8, 1, false, 1>;
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
  return product.x_dtype == DType::kBF16 && product.weight_dtype == DType::kBF16 &&
         product.rows >= 1 && product.rows <= kFewRowsMost && product.k > 0 &&
         product.k % kSpanNumbers == 0 && product.n > 0 && product.n % (8 * halves) == 0 &&
         product.norm_weight == nullptr && product.x_stride % 8 == 0 &&
         product.out_stride % 4 == 0 && Aligned(product.x, 16) && Aligned(product.weight, 16) &&
         Aligned(product.out, f32 ? 16 : 8) && (!product.silu_mul || product.bias == nullptr);
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
  a.bias = product.bias;
  a.out = product.out;
  a.out_stride = product.out_stride;
  a.rows = product.rows;
  a.outputs = product.silu_mul ? product.n / 2 : product.n;
  a.k_spans = product.k / kSpanNumbers;
  a.f32 = product.out_dtype == DType::kF32;
  a.accumulate = product.accumulate;
  a.plan = plan;
  cudaError_t error =
      DescribeBoxes(WeightOf(product), {.rows = plan.tile_outputs, .spans = plan.spans}, &a.weight);
  if (error != cudaSuccess) return error;
  error = DescribeBoxes(XOf(product), {.rows = plan.row_group, .spans = plan.spans}, &a.x);
  if (error != cudaSuccess) return error;
  const Kernel kernel = KernelFor(plan, product.silu_mul);
  error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, plan.shared_bytes);
  if (error != cudaSuccess) return error;
  const OverlappedLaunch launch = LaunchOf(plan, plan.shared_bytes, stream);
  return cudaLaunchKernelEx(launch.config(), kernel, a);
}

}  // namespace baton::cuda
