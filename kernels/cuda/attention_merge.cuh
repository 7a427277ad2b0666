#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace baton::cuda {

// A softmax-weighted sum of values, of which the lanes of a warp hold pairs of dimensions: pair i
// of lane l is (64·i + 2·l, 64·i + 2·l + 1). Parts are added in order with fixed roundings, so that
// the same parts give the same bits in every kernel.
template <int kPairs>
struct MergedSum {
  float2 values[kPairs] = {};
  float largest = -INFINITY;  // of the parts' weights (base-2 logarithms)
  float weight = 0;           // of all parts, over 2^largest

  __device__ __forceinline__ void Add(const float2 (&part)[kPairs], float part_weight) {
    const float next = fmaxf(largest, part_weight);
    const float keep = exp2f(largest - next);
    const float add = exp2f(part_weight - next);
    largest = next;
    weight = __fmaf_rn(weight, keep, add);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      values[i].x = __fmaf_rn(values[i].x, keep, __fmul_rn(part[i].x, add));
      values[i].y = __fmaf_rn(values[i].y, keep, __fmul_rn(part[i].y, add));
    }
  }

  // What it is as one part of a larger sum.
  __device__ __forceinline__ float2 Value(int i) const {
    return make_float2(__fdiv_rn(values[i].x, weight), __fdiv_rn(values[i].y, weight));
  }
  __device__ __forceinline__ float Weight() const {
    return largest + log2f(weight);
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

// How many pairs a lane holds of heads of `head_dim` dimensions: 1, 2 or 4.
inline int PairsOf(int head_dim) {
  return head_dim <= 64 ? 1 : head_dim <= 128 ? 2 : 4;
}

}  // namespace baton::cuda
