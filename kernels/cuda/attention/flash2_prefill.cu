#include "kernels/cuda/attention/flash2.cuh"

namespace baton::cuda {
namespace {

// Four warps along the rows of a tile.
using Chunk =
    ByHeadSize<PagedKernels<64, 128, 4>, PagedKernels<128, 128, 4>, PagedKernels<256, 64, 4>>;

}  // namespace

int32_t ChunkTile(int32_t head_dim) {
  return head_dim == 256 ? 64 : 128;
}

cudaError_t PrepareChunkAttention() {
  return Chunk::Prepare();
}

cudaError_t LaunchChunkAttention(const PagedWork& work, const AttentionLaunch& call) {
  return Chunk::Launch(work, call);
}

}  // namespace baton::cuda
