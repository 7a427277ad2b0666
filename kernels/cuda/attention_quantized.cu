#include "kernels/cuda/attention_paged.cuh"

namespace baton::cuda {
namespace {

// As for bf16 (attention_decode.cu, attention_prefill.cu), with the shared memory that is left for
// more positions at once.
using Decode = ByHeadSize<PagedKernels<64, 16, 4, Fp8>,
                          PagedKernels<128, 16, 4, Fp8>,
                          PagedKernels<256, 16, 2, Fp8>>;
using Chunk = ByHeadSize<PagedKernels<64, 128, 4, Fp8>,
                         PagedKernels<128, 128, 4, Fp8>,
                         PagedKernels<256, 64, 4, Fp8>>;

}  // namespace

cudaError_t PrepareQuantizedAttention() {
  const cudaError_t error = Decode::Prepare();
  return error == cudaSuccess ? Chunk::Prepare() : error;
}

cudaError_t LaunchQuantizedDecodeAttention(const PagedWork& work, const AttentionCall& call) {
  return Decode::Launch(work, call);
}

cudaError_t LaunchQuantizedChunkAttention(const PagedWork& work, const AttentionCall& call) {
  return Chunk::Launch(work, call);
}

}  // namespace baton::cuda
