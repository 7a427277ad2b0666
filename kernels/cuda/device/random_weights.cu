#include <algorithm>

#include "kernels/cuda/device/random_weights.h"
#include "kernels/uniform_weight.h"

namespace baton::cuda {
namespace {

// Thread blocks take the rows in turn. Number (i, j) is number first + i · stride + j of the
// stream.
__global__ void RandomWeightsKernel(uint64_t stream,
                                    uint64_t first,
                                    int64_t stride,
                                    float scale,
                                    __nv_bfloat16* out,
                                    int64_t rows,
                                    int64_t cols) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const uint64_t index = first + static_cast<uint64_t>(row * stride);
    for (int64_t col = threadIdx.x; col < cols; col += blockDim.x) {
      const float number = UniformWeight(stream, index + static_cast<uint64_t>(col));
      out[row * cols + col] = __float2bfloat16(scale * number);
    }
  }
}

}  // namespace

cudaError_t LaunchRandomWeights(const HostMatrix& matrix, __nv_bfloat16* out, cudaStream_t on) {
  constexpr int kThreads = 256;
  constexpr int64_t kMaxBlocks = 4096;
  const auto blocks = static_cast<unsigned>(std::clamp<int64_t>(matrix.rows, 1, kMaxBlocks));
  RandomWeightsKernel<<<blocks, kThreads, 0, on>>>(matrix.stream,
                                                   matrix.StreamIndex(0),
                                                   matrix.row_stride(),
                                                   matrix.scale,
                                                   out,
                                                   matrix.rows,
                                                   matrix.cols);
  return cudaGetLastError();
}

}  // namespace baton::cuda
