#pragma once

#include <cuda_bf16.h>

namespace baton::cuda {

// Numbers that are stored as bf16 or float32 and computed as float32. Store rounds once.
__device__ __forceinline__ float ToFloat(float x) {
  return x;
}
__device__ __forceinline__ float ToFloat(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
__device__ __forceinline__ void Store(float x, float* to) {
  *to = x;
}
__device__ __forceinline__ void Store(float x, __nv_bfloat16* to) {
  *to = __float2bfloat16(x);
}

}  // namespace baton::cuda
