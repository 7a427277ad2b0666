#pragma once

namespace baton::cuda {

// silu(gate) · up, with fast division and exponential.
__device__ __forceinline__ float SiluMul(float gate, float up) {
  return __fdividef(gate, 1.0f + __expf(-gate)) * up;
}

}  // namespace baton::cuda
