#include <algorithm>

#include "kernels/cuda/device/random_weights.h"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/uniform_weight.h"

namespace baton::cuda {
namespace {

__global__ void RandomWeightsKernel(uint64_t stream,
                                    float scale,
                                    __nv_bfloat16* out,
                                    int64_t count) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    out[i] = __float2bfloat16(scale * UniformWeight(stream, static_cast<uint64_t>(i)));
  }
}

}  // namespace

cudaError_t LaunchRandomWeights(
    uint64_t stream, float scale, __nv_bfloat16* out, int64_t count, cudaStream_t on) {
  constexpr int kThreads = 256;
  constexpr int kMaxBlocks = 4096;
  const int blocks = std::clamp(CeilDiv(count, kThreads), 1, kMaxBlocks);
  RandomWeightsKernel<<<blocks, kThreads, 0, on>>>(stream, scale, out, count);
  return cudaGetLastError();
}

}  // namespace baton::cuda
