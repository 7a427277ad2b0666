#include "kernels/cuda/attention_paged.cuh"

namespace baton::cuda {
namespace {

// Tiles of 16 packed rows: one row of up to 16 heads a group, four warps along the context.
using Decode64 = PagedKernels<64, 16, 4>;
using Decode128 = PagedKernels<128, 16, 2>;
using Decode256 = PagedKernels<256, 16, 1>;

}  // namespace

cudaError_t PrepareDecodeAttention() {
  for (const cudaError_t error :
       {Decode64::Prepare(), Decode128::Prepare(), Decode256::Prepare()}) {
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t LaunchDecodeAttention(const PagedWork& work, const AttentionCall& call) {
  switch (call.shape.head_dim) {
    case 64:
      return Decode64::Launch(work, call);
    case 128:
      return Decode128::Launch(work, call);
    case 256:
      return Decode256::Launch(work, call);
    default:
      return cudaErrorNotSupported;
  }
}

}  // namespace baton::cuda
