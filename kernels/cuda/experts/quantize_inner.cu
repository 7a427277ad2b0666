#include "kernels/cuda/experts/experts_kernels.h"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/rounding.h"
#include "kernels/cuda/primitives/vector8.cuh"
#include "kernels/cuda/rows/quantize.cuh"

// Converts the inputs of the GEMM of down to FP8. There are more rows than LaunchQuantize expects,
// and they are shorter; their number is known on the device alone.
namespace baton::cuda {
namespace {

constexpr int kWarps = 8;

// One warp for each slot. It reads the slot's row twice; the second time from the L1 cache.
__global__ void __launch_bounds__(32 * kWarps) QuantizeSlots(const ExpertScratch scratch) {
  ReleaseSuccessor();
  WaitForPredecessor();
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const auto slot = static_cast<int32_t>(blockIdx.x * kWarps + threadIdx.x / 32);
  if (slot >= *scratch.slot_count) return;
  const auto cols = static_cast<int32_t>(scratch.fp8_inner.cols);
  const __nv_bfloat16* const from = scratch.inner + int64_t{slot} * cols;
  std::byte* const to = scratch.fp8_inner.data + int64_t{slot} * cols;
  float values[1][8];
  float largest = 0;
  for (int32_t col = 8 * lane; col < cols; col += 8 * 32) {
    Read8(from + col, values[0]);
    largest = fmaxf(largest, LargestOf(values));
  }
  largest = LargestOverWarp(largest);
  if (lane == 0) scratch.fp8_inner.scales[slot] = largest / kLargestFp8;
  const float factor = QuantizingFactor(largest);
  for (int32_t col = 8 * lane; col < cols; col += 8 * 32) {
    Read8(from + col, values[0]);
    *reinterpret_cast<uint2*>(to + col) = PackFp8(values[0], factor);
  }
}

}  // namespace

cudaError_t LaunchQuantizeInner(int64_t rows,
                                const PreparedExperts& experts,
                                const ExpertScratch& scratch,
                                cudaStream_t stream) {
  return LaunchOverlapped(QuantizeSlots,
                          dim3(static_cast<uint32_t>(CeilDiv(rows * experts.per_token, kWarps))),
                          dim3(32 * kWarps),
                          0,
                          stream,
                          scratch);
}

}  // namespace baton::cuda
