#include "kernels/cuda/gemm/tensor_map.h"

#include <algorithm>
#include <cstddef>

#include "kernels/cuda/device/driver_function.h"

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

// Describes an array of bf16 of kRank dimensions. The first dimension is contiguous. `strides` are
// those of the other dimensions, in bytes.
template <size_t kRank>
cudaError_t EncodeMap(const void* data,
                      const cuuint64_t (&sizes)[kRank],
                      const cuuint64_t (&strides)[kRank - 1],
                      const cuuint32_t (&shape)[kRank],
                      CUtensorMapL2promotion promotion,
                      CUtensorMap* map) {
  static const Encode encode = FindDriverFunction<Encode>("cuTensorMapEncodeTiled", 12000);
  if (encode == nullptr) return cudaErrorNotSupported;
  cuuint32_t steps[kRank];
  std::fill_n(steps, kRank, 1);
  const CUresult result = encode(map,
                                 CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                                 kRank,
                                 const_cast<void*>(data),
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

}  // namespace

cudaError_t MakeTensorMap(const MatrixView& matrix, const Box& box, CUtensorMap* map) {
  const cuuint64_t sizes[] = {kSpanNumbers,
                              static_cast<cuuint64_t>(matrix.rows),
                              static_cast<cuuint64_t>(matrix.row_bytes / kSpanBytes)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(matrix.stride), kSpanBytes};
  const cuuint32_t shape[] = {
      kSpanNumbers, static_cast<cuuint32_t>(box.rows), static_cast<cuuint32_t>(box.spans)};
  // When the next box along k is the neighbour of this one, L2 promotion reads both at once.
  const CUtensorMapL2promotion promotion =
      box.spans == 1 ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B : CU_TENSOR_MAP_L2_PROMOTION_NONE;
  return EncodeMap(matrix.data, sizes, strides, shape, promotion, map);
}

cudaError_t MakeMixedTensorMap(const MatrixView& matrix, int32_t box_rows, CUtensorMap* map) {
  // The dimensions are k, b, q, j and the groups of kMixedRows rows.
  const auto row = static_cast<cuuint64_t>(matrix.stride);
  const auto group = static_cast<cuuint64_t>(kMixedRows);
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(matrix.row_bytes / 2),
                              2,
                              4,
                              4,
                              static_cast<cuuint64_t>(matrix.rows) / group};
  const cuuint64_t strides[] = {row, 8 * row, 2 * row, group * row};
  const cuuint32_t shape[] = {
      kSpanNumbers, 2, 4, 4, static_cast<cuuint32_t>(box_rows / kMixedRows)};
  return EncodeMap(matrix.data, sizes, strides, shape, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, map);
}

cudaError_t MakePagedTensorMap(const PagedView& view, int32_t box_tokens, CUtensorMap* map) {
  // The dimensions are the numbers of a span, the tokens of a block, spans, and blocks.
  const cuuint64_t spans = static_cast<cuuint64_t>(view.token_bytes / kSpanBytes);
  const cuuint64_t sizes[] = {kSpanNumbers,
                              static_cast<cuuint64_t>(view.block_tokens),
                              spans,
                              static_cast<cuuint64_t>(view.blocks)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(view.token_bytes),
                                kSpanBytes,
                                static_cast<cuuint64_t>(view.block_stride)};
  const cuuint32_t shape[] = {
      kSpanNumbers, static_cast<cuuint32_t>(box_tokens), static_cast<cuuint32_t>(spans), 1};
  return EncodeMap(view.data, sizes, strides, shape, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, map);
}

}  // namespace baton::cuda
