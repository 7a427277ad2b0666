#include <algorithm>

#include "kernels/cuda/few_rows.h"
#include "kernels/cuda/few_rows_kernel.cuh"

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

bool Aligned(const void* pointer, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
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

// Boxes of `box_rows` rows × `box_spans` spans of the matrix [rows][k], seen as
// [span][row][number]; what lies outside it reads as zeros.
cudaError_t DescribeBoxes(const void* data,
                          int32_t rows,
                          int32_t k,
                          int64_t stride,
                          int32_t box_rows,
                          int32_t box_spans,
                          CUtensorMap* map) {
  static const Encode encode = FindEncode();
  if (encode == nullptr) return cudaErrorNotSupported;
  const cuuint64_t sizes[] = {
      kFewRowsSpan, static_cast<cuuint64_t>(rows), static_cast<cuuint64_t>(k / kFewRowsSpan)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(stride) * 2, kFewRowsSpan * 2};
  const cuuint32_t box[] = {
      kFewRowsSpan, static_cast<cuuint32_t>(box_rows), static_cast<cuuint32_t>(box_spans)};
  const cuuint32_t steps[] = {1, 1, 1};
  // Where the next box is the neighbour of this one, memory gives both at once.
  const CUtensorMapL2promotion promotion =
      box_spans == 1 ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B : CU_TENSOR_MAP_L2_PROMOTION_NONE;
  const CUresult result = encode(map,
                                 CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                                 3,
                                 const_cast<void*>(data),
                                 sizes,
                                 strides,
                                 box,
                                 steps,
                                 CU_TENSOR_MAP_INTERLEAVE_NONE,
                                 CU_TENSOR_MAP_SWIZZLE_128B,
                                 promotion,
                                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// The launch of a plan, overlapped with its predecessor.
struct Configuration {
  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t config = {};

  Configuration(const FewRowsPlan& plan, int32_t shared_bytes, cudaStream_t stream) {
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = static_cast<unsigned>(plan.cluster);
    attributes[1].val.clusterDim.y = 1;
    attributes[1].val.clusterDim.z = 1;
    config.gridDim = dim3(static_cast<unsigned>(plan.clusters * plan.cluster));
    config.blockDim = dim3(FewRowsThreads(plan.teams));
    config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = plan.cluster > 1 ? 2 : 1;
  }
  Configuration(const Configuration&) = delete;
  Configuration& operator=(const Configuration&) = delete;
};

// Clusters of blocks with nearly all shared memory that run at a time; 0 when that is unknown.
int32_t CountClusters(int32_t cluster) {
  constexpr int32_t kShared = 200 << 10;
  const Kernel kernel = FewRowsKernel<8, 1, false, 1>;
  int count = 0;
  const Configuration launch(FewRowsPlan{.cluster = cluster}, kShared, nullptr);
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared) !=
          cudaSuccess ||
      cudaOccupancyMaxActiveClusters(&count, kernel, &launch.config) != cudaSuccess) {
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
         product.k % kFewRowsSpan == 0 && product.n > 0 && product.n % (8 * halves) == 0 &&
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
  a.k_spans = product.k / kFewRowsSpan;
  a.f32 = product.out_dtype == DType::kF32;
  a.accumulate = product.accumulate;
  a.plan = plan;
  cudaError_t error = DescribeBoxes(
      product.weight, product.n, product.k, product.k, plan.tile_outputs, plan.spans, &a.weight);
  if (error != cudaSuccess) return error;
  error = DescribeBoxes(
      product.x, product.rows, product.k, product.x_stride, plan.row_group, plan.spans, &a.x);
  if (error != cudaSuccess) return error;
  const Kernel kernel = KernelFor(plan, product.silu_mul);
  error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, plan.shared_bytes);
  if (error != cudaSuccess) return error;
  const Configuration launch(plan, plan.shared_bytes, stream);
  return cudaLaunchKernelEx(&launch.config, kernel, a);
}

}  // namespace baton::cuda
