#pragma once

// Reductions over one number of each of the warp's 32 lanes. Every lane gets the result.
namespace baton::cuda {

// The order of additions is fixed.
__device__ __forceinline__ float SumOverWarp(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  return value;
}

__device__ __forceinline__ float LargestOverWarp(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(~0u, value, offset));
  }
  return value;
}

}  // namespace baton::cuda
