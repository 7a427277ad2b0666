#include "kernels/cuda/gemm/tensor_map.h"

namespace baton::cuda {
namespace {

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

// The driver's function, looked up at run time, because nothing links to the driver library.
Encode FindEncode() {
  constexpr unsigned kSince = 12000;
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error = cudaGetDriverEntryPointByVersion(
      "cuTensorMapEncodeTiled", &found, kSince, cudaEnableDefault, &result);
  if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<Encode>(found);
}

}  // namespace

cudaError_t MakeTensorMap(const MatrixView& matrix, const Box& box, CUtensorMap* map) {
  static const Encode encode = FindEncode();
  if (encode == nullptr) return cudaErrorNotSupported;
  const cuuint64_t sizes[] = {kSpanNumbers,
                              static_cast<cuuint64_t>(matrix.rows),
                              static_cast<cuuint64_t>(matrix.row_bytes / kSpanBytes)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(matrix.stride), kSpanBytes};
  const cuuint32_t shape[] = {
      kSpanNumbers, static_cast<cuuint32_t>(box.rows), static_cast<cuuint32_t>(box.spans)};
  const cuuint32_t steps[] = {1, 1, 1};
  // When the next box along k is the neighbour of this one, L2 promotion reads both at once.
  const CUtensorMapL2promotion promotion =
      box.spans == 1 ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B : CU_TENSOR_MAP_L2_PROMOTION_NONE;
  const CUresult result = encode(map,
                                 CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                                 3,
                                 const_cast<void*>(matrix.data),
                                 sizes,
                                 strides,
                                 shape,
                                 steps,
                                 CU_TENSOR_MAP_INTERLEAVE_NONE,
                                 CU_TENSOR_MAP_SWIZZLE_128B,
                                 promotion,
                                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace baton::cuda
