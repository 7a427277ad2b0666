#include "kernels/cuda/gemm/packed_skinny_kernel.cuh"

namespace baton::cuda {

PackedSkinnyPointer PackedSkinnyOfI8(const PackedFormat& format, int32_t row_group) {
  return PackedSkinnyFor<DType::kI8, ScaleType::kBF16>(format.group, row_group);
}

}  // namespace baton::cuda
