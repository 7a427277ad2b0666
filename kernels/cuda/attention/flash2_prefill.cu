#include "kernels/cuda/attention/flash2.cuh"

namespace baton::cuda {

PagedKernelSet Flash2Chunks(bool rows_alone) {
  return rows_alone ? SetOf<RowsAloneTiles<__nv_bfloat16, /*kCapped=*/false>>()
                    : SetOf<ChunkTiles<__nv_bfloat16, /*kCapped=*/false>>();
}

}  // namespace baton::cuda
