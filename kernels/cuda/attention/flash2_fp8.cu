#include "kernels/cuda/attention/flash2.cuh"
#include "kernels/cuda/attention/rows_alone.h"

namespace baton::cuda {
namespace {

// As for bf16 (flash2_decode.cu, flash2_prefill.cu). The shared memory that fp8 saves holds more
// positions at once.
using Decode = ByHeadSize<PagedKernels<64, 16, 4, Fp8>,
                          PagedKernels<128, 16, 4, Fp8>,
                          PagedKernels<256, 16, 2, Fp8>>;
using Chunk = ByHeadSize<PagedKernels<64, 128, 4, Fp8>,
                         PagedKernels<128, 128, 4, Fp8>,
                         PagedKernels<256, 64, 4, Fp8>>;

using Alone = ByHeadSize<RowsAloneKernel<64, 128, 4, Fp8>,
                         RowsAloneKernel<128, 128, 4, Fp8>,
                         RowsAloneKernel<256, 64, 4, Fp8>>;

}  // namespace

cudaError_t PrepareFp8Attention() {
  for (const cudaError_t error : {Decode::Prepare(), Chunk::Prepare(), Alone::Prepare()}) {
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t LaunchFp8DecodeAttention(const PagedWork& work, const AttentionLaunch& call) {
  return Decode::Launch(work, call);
}

cudaError_t LaunchFp8ChunkAttention(const PagedWork& work, const AttentionLaunch& call) {
  return Chunk::Launch(work, call);
}

cudaError_t LaunchFp8ChunkRowsAlone(const PagedWork& work, const AttentionLaunch& call) {
  return Alone::Launch(work, call);
}

}  // namespace baton::cuda
