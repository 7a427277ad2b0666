#pragma once

#include <cuda_runtime.h>

// What attention does with logits beside scaling them. Kernels hold logits times the base-2
// logarithm of e.
namespace baton::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;

// cap · tanh(logit / cap) (AttentionArgs::cap). `logit`, `cap` and the result are times kLog2E.
__device__ __forceinline__ float Capped(float logit, float cap) {
  // tanh(x) = 1 − 2 / (1 + e^2x). Its error is about 2^-23 of the cap; that of tanh.approx is 2^-11
  // of the logit.
  const float power = exp2f(logit * (2 * kLog2E / cap));
  return cap - __fdividef(2 * cap, 1 + power);
}

// What a head's sink (AttentionArgs::sinks) adds to a sum of 2^(logit − largest), where `largest`
// is times kLog2E.
__device__ __forceinline__ float SinkTerm(float sink, float largest) {
  return exp2f(sink * kLog2E - largest);
}

}  // namespace baton::cuda
