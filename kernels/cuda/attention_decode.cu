#include "kernels/cuda/attention_paged.cuh"

namespace baton::cuda {
namespace {

// Tiles of 16 packed rows: one row of up to 16 heads a group, four warps along the context.
using Decode =
    ByHeadSize<PagedKernels<64, 16, 4>, PagedKernels<128, 16, 2>, PagedKernels<256, 16, 1>>;

}  // namespace

cudaError_t PrepareDecodeAttention() {
  return Decode::Prepare();
}

cudaError_t LaunchDecodeAttention(const PagedWork& work, const AttentionCall& call) {
  return Decode::Launch(work, call);
}

}  // namespace baton::cuda
