#include "kernels/cuda/gemm/packed_skinny_kernel.cuh"

namespace baton::cuda {

PackedSkinnyPointer PackedSkinnyOfFp4(const PackedFormat& format, int32_t row_group) {
  return format.scale == ScaleType::kE8m0
             ? PackedSkinnyFor<DType::kFp4, ScaleType::kE8m0>(format.group, row_group)
             : PackedSkinnyFor<DType::kFp4, ScaleType::kFp8>(format.group, row_group);
}

}  // namespace baton::cuda
