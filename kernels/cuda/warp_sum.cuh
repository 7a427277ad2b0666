#pragma once

namespace baton::cuda {

// The sum over the warp's 32 lanes; every lane gets it. The order of additions is fixed.
__device__ __forceinline__ float SumOverWarp(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  return value;
}

}  // namespace baton::cuda
