#include "kernels/cuda/attention/flash2.cuh"

namespace baton::cuda {
namespace {

// Tiles of 16 packed rows: one row with up to 16 heads per group, and four warps along the context.
using Decode =
    ByHeadSize<PagedKernels<64, 16, 4>, PagedKernels<128, 16, 2>, PagedKernels<256, 16, 1>>;

}  // namespace

cudaError_t PrepareDecodeAttention() {
  return Decode::Prepare();
}

cudaError_t LaunchDecodeAttention(const PagedWork& work, const AttentionLaunch& call) {
  return Decode::Launch(work, call);
}

}  // namespace baton::cuda
