#include "kernels/cuda/attention_paged.cuh"

namespace baton::cuda {
namespace {

// Four warps along the rows of a tile.
using Chunk64 = PagedKernels<64, 128, 4>;
using Chunk128 = PagedKernels<128, 128, 4>;
using Chunk256 = PagedKernels<256, 64, 4>;

}  // namespace

int32_t ChunkTile(int32_t head_dim) {
  return head_dim == 256 ? 64 : 128;
}

cudaError_t PrepareChunkAttention() {
  for (const cudaError_t error : {Chunk64::Prepare(), Chunk128::Prepare(), Chunk256::Prepare()}) {
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t LaunchChunkAttention(const PagedWork& work, const AttentionCall& call) {
  switch (call.shape.head_dim) {
    case 64:
      return Chunk64::Launch(work, call);
    case 128:
      return Chunk128::Launch(work, call);
    case 256:
      return Chunk256::Launch(work, call);
    default:
      return cudaErrorNotSupported;
  }
}

}  // namespace baton::cuda
