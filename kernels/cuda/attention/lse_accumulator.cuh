#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace baton::cuda {

// Combines partial results by LSE. The lanes of a warp hold pairs of dimensions: pair i of lane l
// is (64·i + 2·l, 64·i + 2·l + 1). Partial results are added in order with fixed roundings, so that
// the same partial results give the same bits in every kernel.
template <int kPairs>
struct LseAccumulator {
  float2 values[kPairs] = {};
  float largest = -INFINITY;  // the largest LSE (base-2 logarithm)
  float denominator = 0;      // sum of 2^(lse − largest)

  __device__ __forceinline__ void Add(const float2 (&partial)[kPairs], float lse) {
    const float next = fmaxf(largest, lse);
    const float keep = exp2f(largest - next);
    const float add = exp2f(lse - next);
    largest = next;
    denominator = __fmaf_rn(denominator, keep, add);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      values[i].x = __fmaf_rn(values[i].x, keep, __fmul_rn(partial[i].x, add));
      values[i].y = __fmaf_rn(values[i].y, keep, __fmul_rn(partial[i].y, add));
    }
  }

  // Adds a logit without a value, times the base-2 logarithm of e.
  __device__ __forceinline__ void AddSink(float logit) {
    const float next = fmaxf(largest, logit);
    const float keep = exp2f(largest - next);
    largest = next;
    denominator = __fmaf_rn(denominator, keep, exp2f(logit - next));
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      values[i].x = __fmul_rn(values[i].x, keep);
      values[i].y = __fmul_rn(values[i].y, keep);
    }
  }

  // The combined result, as a partial result of a larger combination.
  __device__ __forceinline__ float2 Value(int i) const {
    return make_float2(__fdiv_rn(values[i].x, denominator), __fdiv_rn(values[i].y, denominator));
  }
  __device__ __forceinline__ float Lse() const {
    return largest + log2f(denominator);
  }

  // Writes the row `out` [head_dim].
  __device__ __forceinline__ void Write(__nv_bfloat16* out, int head_dim, int lane) const {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int d = 64 * i + 2 * lane;
      if (d < head_dim) {
        const float2 value = Value(i);
        *reinterpret_cast<__nv_bfloat162*>(out + d) = __floats2bfloat162_rn(value.x, value.y);
      }
    }
  }
};

// Pairs that a lane holds for heads of `head_dim` dimensions: 1, 2 or 4.
inline int PairsPerLane(int head_dim) {
  return head_dim <= 64 ? 1 : head_dim <= 128 ? 2 : 4;
}

}  // namespace baton::cuda
