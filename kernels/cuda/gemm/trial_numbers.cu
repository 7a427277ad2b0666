#include "kernels/cuda/gemm/trial_numbers.h"
#include "kernels/uniform_weight.h"

namespace baton::cuda {
namespace {

constexpr unsigned kBlocks = 1024;
constexpr unsigned kThreads = 256;

__global__ void FillNumbers(__nv_bfloat16* to, int64_t count, uint32_t seed) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    to[i] = __float2bfloat16(UniformWeight(seed, static_cast<uint64_t>(i)));
  }
}

__global__ void FillFp8(__nv_fp8_e4m3* to, int64_t count, uint32_t seed) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    to[i] = __nv_fp8_e4m3(UniformWeight(seed, static_cast<uint64_t>(i)));
  }
}

__global__ void FindDifference(const uint32_t* a,
                               const uint32_t* b,
                               int64_t words,
                               uint32_t* differs) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words; i += step) {
    if (a[i] != b[i]) *differs = 1;
  }
}

}  // namespace

cudaError_t LaunchFillNumbers(__nv_bfloat16* to,
                              int64_t count,
                              uint32_t seed,
                              cudaStream_t stream) {
  FillNumbers<<<kBlocks, kThreads, 0, stream>>>(to, count, seed);
  return cudaGetLastError();
}

cudaError_t LaunchFillFp8(__nv_fp8_e4m3* to, int64_t count, uint32_t seed, cudaStream_t stream) {
  FillFp8<<<kBlocks, kThreads, 0, stream>>>(to, count, seed);
  return cudaGetLastError();
}

cudaError_t LaunchFindDifference(
    const uint32_t* a, const uint32_t* b, int64_t words, uint32_t* differs, cudaStream_t stream) {
  FindDifference<<<kBlocks, kThreads, 0, stream>>>(a, b, words, differs);
  return cudaGetLastError();
}

}  // namespace baton::cuda
