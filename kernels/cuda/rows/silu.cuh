#pragma once

namespace baton::cuda {

// silu(gate) · up, with fast division and exponential.
__device__ __forceinline__ float SiluMul(float gate, float up) {
  return __fdividef(gate, 1.0f + __expf(-gate)) * up;
}

// max(x, 0)².
__device__ __forceinline__ float SquaredRelu(float x) {
  return fmaxf(x, 0.0f) * fmaxf(x, 0.0f);
}

}  // namespace baton::cuda
