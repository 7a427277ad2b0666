#include "kernels/cuda/gemm/packed_skinny_kernel.cuh"

namespace baton::cuda {

PackedSkinnyPointer PackedSkinnyOfU4(const PackedFormat& format, int32_t row_group) {
  return PackedSkinnyFor<DType::kU4, ScaleType::kBF16>(format.group, row_group);
}

}  // namespace baton::cuda
