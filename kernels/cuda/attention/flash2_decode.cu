#include "kernels/cuda/attention/flash2.cuh"

namespace baton::cuda {

PagedKernelSet Flash2Rows() {
  return SetOf<RowTiles<__nv_bfloat16, /*kCapped=*/false>>();
}

}  // namespace baton::cuda
