#include "kernels/cuda/attention_paged.cuh"

namespace baton::cuda {
namespace {

// As for bf16 (attention_decode.cu, attention_prefill.cu), with the shared memory that is left for
// more positions at once.
using Decode64 = PagedKernels<64, 16, 4, Fp8>;
using Decode128 = PagedKernels<128, 16, 4, Fp8>;
using Decode256 = PagedKernels<256, 16, 2, Fp8>;
using Chunk64 = PagedKernels<64, 128, 4, Fp8>;
using Chunk128 = PagedKernels<128, 128, 4, Fp8>;
using Chunk256 = PagedKernels<256, 64, 4, Fp8>;

}  // namespace

cudaError_t PrepareQuantizedAttention() {
  for (const cudaError_t error : {Decode64::Prepare(),
                                  Decode128::Prepare(),
                                  Decode256::Prepare(),
                                  Chunk64::Prepare(),
                                  Chunk128::Prepare(),
                                  Chunk256::Prepare()}) {
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t LaunchQuantizedDecodeAttention(const PagedWork& work, const AttentionCall& call) {
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

cudaError_t LaunchQuantizedChunkAttention(const PagedWork& work, const AttentionCall& call) {
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
