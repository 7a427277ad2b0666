#include "kernels/cuda/attention/flash2.cuh"
#include "kernels/cuda/attention/rows_alone.h"

namespace baton::cuda {
namespace {

// Four warps along the rows of a tile.
using Chunk =
    ByHeadSize<PagedKernels<64, 128, 4>, PagedKernels<128, 128, 4>, PagedKernels<256, 64, 4>>;

using Alone = ByHeadSize<RowsAloneKernel<64, 128, 4>,
                         RowsAloneKernel<128, 128, 4>,
                         RowsAloneKernel<256, 64, 4>>;

}  // namespace

int32_t ChunkTile(int32_t head_dim) {
  return head_dim == 256 ? 64 : 128;
}

cudaError_t PrepareChunkAttention() {
  const cudaError_t error = Chunk::Prepare();
  return error == cudaSuccess ? Alone::Prepare() : error;
}

cudaError_t LaunchChunkAttention(const PagedWork& work, const AttentionLaunch& call) {
  return Chunk::Launch(work, call);
}

cudaError_t LaunchChunkRowsAlone(const PagedWork& work, const AttentionLaunch& call) {
  return Alone::Launch(work, call);
}

}  // namespace baton::cuda
