#include <cuda.h>

#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/skinny_gemm.h"
#include "kernels/cuda/skinny_gemm_kernel.cuh"

namespace baton::cuda {
namespace {

constexpr int32_t kMostRows = 64;

using Kernel = void (*)(SkinnyGemmArguments);

Kernel KernelFor(int32_t column_groups, bool norm) {
  switch (column_groups) {
    case 1:
      return norm ? SkinnyGemmKernel<1, true> : SkinnyGemmKernel<1, false>;
    case 2:
      return norm ? SkinnyGemmKernel<2, true> : SkinnyGemmKernel<2, false>;
    case 4:
      return norm ? SkinnyGemmKernel<4, true> : SkinnyGemmKernel<4, false>;
    default:
      return norm ? SkinnyGemmKernel<8, true> : SkinnyGemmKernel<8, false>;
  }
}

bool Aligned16(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

using Encode = CUresult (*)(CUtensorMap*,
                            CUtensorMapDataType,
                            cuuint32_t,
                            void*,
                            const cuuint64_t*,
                            const cuuint64_t*,
                            const cuuint32_t*,
                            const cuuint32_t*,
                            CUtensorMapInterleave,
                            CUtensorMapSwizzle,
                            CUtensorMapL2promotion,
                            CUtensorMapFloatOOBfill);

// The driver's function, found at run time: nothing links to the driver.
Encode FindEncode() {
  constexpr unsigned kSince = 12000;
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error = cudaGetDriverEntryPointByVersion(
      "cuTensorMapEncodeTiled", &found, kSince, cudaEnableDefault, &result);
  if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<Encode>(found);
}

// Boxes of `box_rows` rows × 64 numbers of the matrix [rows][k]; rows outside it read as zeros.
cudaError_t DescribeBoxes(const __nv_bfloat16* data,
                          int32_t rows,
                          int32_t k,
                          int64_t stride,
                          int32_t box_rows,
                          CUtensorMap* map) {
  static const Encode encode = FindEncode();
  if (encode == nullptr) return cudaErrorNotSupported;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(k), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(stride) * 2};
  const cuuint32_t box[] = {kSkinnySpan, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[] = {1, 1};
  const CUresult result = encode(map,
                                 CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                                 2,
                                 const_cast<__nv_bfloat16*>(data),
                                 sizes,
                                 strides,
                                 box,
                                 steps,
                                 CU_TENSOR_MAP_INTERLEAVE_NONE,
                                 CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// The launch of `blocks` blocks in clusters, overlapped with its predecessor.
struct Configuration {
  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t config = {};

  Configuration(int32_t blocks, int32_t cluster, int32_t shared_bytes, cudaStream_t stream) {
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = static_cast<unsigned>(cluster);
    attributes[1].val.clusterDim.y = 1;
    attributes[1].val.clusterDim.z = 1;
    config.gridDim = dim3(static_cast<unsigned>(blocks));
    config.blockDim = dim3((kSkinnyWarps + 1) * 32);
    config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = cluster > 1 ? 2 : 1;
  }
  Configuration(const Configuration&) = delete;
  Configuration& operator=(const Configuration&) = delete;
};

// Clusters of blocks with nearly all shared memory that run at a time; 0 when that is unknown.
int32_t CountClusters(int32_t cluster) {
  constexpr int32_t kShared = 200 << 10;
  const Kernel kernel = SkinnyGemmKernel<1, false>;
  int count = 0;
  const Configuration launch(cluster, cluster, kShared, nullptr);
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared) !=
          cudaSuccess ||
      cudaOccupancyMaxActiveClusters(&count, kernel, &launch.config) != cudaSuccess) {
    return 0;
  }
  return count;
}

}  // namespace

bool SkinnyGemmTakes(const Product& product) {
  const int32_t unit_rows = kSkinnyTileRows * (product.silu_mul ? 2 : 1);
  return product.rows >= 1 && product.rows <= kMostRows && product.k > 0 &&
         product.k % kSkinnySpan == 0 && product.n > 0 && product.n % unit_rows == 0 &&
         product.x_stride % 8 == 0 && Aligned16(product.x) && Aligned16(product.weight) &&
         Aligned16(product.norm_weight) &&
         (!product.silu_mul || (product.bias == nullptr && !product.accumulate));
}

SkinnyGemmLimits FindSkinnyGemmLimits(int processors) {
  // A process uses devices of one kind.
  static const int32_t of_2 = CountClusters(2);
  static const int32_t of_4 = CountClusters(4);
  return {.blocks = processors,
          .clusters_of_2 = std::min(of_2, processors / 2),
          .clusters_of_4 = std::min(of_4, processors / 4)};
}

cudaError_t LaunchSkinnyGemm(const Product& product, int processors, cudaStream_t stream) {
  return LaunchSkinnyGemm(
      product, PlanSkinnyGemm(product, FindSkinnyGemmLimits(processors)), stream);
}

cudaError_t LaunchSkinnyGemm(const Product& product,
                             const SkinnyGemmPlan& plan,
                             cudaStream_t stream) {
  SkinnyGemmArguments a;
  a.norm_weight = product.norm_weight;
  a.norm_epsilon = product.norm_epsilon;
  a.bias = product.bias;
  a.out = product.out;
  a.out_stride = product.out_stride;
  a.rows = product.rows;
  a.outputs = product.silu_mul ? product.n / 2 : product.n;
  a.k = product.k;
  a.f32 = product.out_dtype == DType::kF32;
  a.accumulate = product.accumulate;
  a.plan = plan;
  cudaError_t error = cudaSuccess;
  for (int32_t size = 0; size < kSkinnyBoxSizes; ++size) {
    error = DescribeBoxes(
        product.weight, product.n, product.k, product.k, kSkinnyTileRows << size, &a.weight[size]);
    if (error != cudaSuccess) return error;
  }
  error = DescribeBoxes(product.x,
                        product.rows,
                        product.k,
                        product.x_stride,
                        plan.column_groups * kSkinnyGroupColumns,
                        &a.x);
  if (error != cudaSuccess) return error;
  const Kernel kernel = KernelFor(plan.column_groups, product.norm_weight != nullptr);
  error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, plan.shared_bytes);
  if (error != cudaSuccess) return error;
  const Configuration launch(plan.clusters * plan.cluster, plan.cluster, plan.shared_bytes, stream);
  return cudaLaunchKernelEx(&launch.config, kernel, a);
}

}  // namespace baton::cuda
