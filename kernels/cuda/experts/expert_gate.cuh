#pragma once

#include "kernels/cuda/rows/silu.cuh"
#include "kernels/expert_args.h"

namespace baton::cuda {

// As ExpertGate says.
__device__ __forceinline__ float Gated(const ExpertGate& form, float gate, float up) {
  if (form.limit == 0) return SiluMul(gate, up);
  gate = fminf(gate, form.limit);
  up = fminf(fmaxf(up, -form.limit), form.limit);
  return gate / (1.0f + expf(-form.alpha * gate)) * (up + 1.0f);
}

}  // namespace baton::cuda
