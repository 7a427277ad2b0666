#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/sampling/sampling_kernels.h"

// Device functions that the sampling kernels share. Probabilities are fixed-point integers: 2⁴⁵ is
// a weight of 1, that of the most probable token. Their sums are exact, so no result depends on how
// a row is divided among thread blocks.
namespace baton::cuda {

constexpr float kLargestLogit = 3.402823466e38f;
constexpr double kFixedOne = 0x1p45;

// An integer with the same order as the float. −0 counts as 0, NaN as −∞.
__device__ __forceinline__ uint32_t OrderedBits(float x) {
  if (isnan(x)) x = -INFINITY;
  const uint32_t bits = __float_as_uint(x + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ float FromOrderedBits(uint32_t ordered) {
  return __uint_as_float((ordered & 0x80000000u) != 0 ? ordered ^ 0x80000000u : ~ordered);
}

// A key that orders by `value`; among equal values the lower token has the higher key.
__device__ __forceinline__ uint64_t KeyOf(uint32_t value, int32_t token) {
  return uint64_t{value} << kIdBits | static_cast<uint32_t>(kMaxVocabulary - 1 - token);
}

__device__ __forceinline__ int32_t TokenOf(uint64_t key) {
  return kMaxVocabulary - 1 - static_cast<int32_t>(key & (kMaxVocabulary - 1));
}

__device__ __forceinline__ uint32_t ValueOf(uint64_t key) {
  return static_cast<uint32_t>(key >> kIdBits);
}

// The logit in a key that was made of OrderedBits.
__device__ __forceinline__ float LogitOf(uint64_t best) {
  return FromOrderedBits(ValueOf(best));
}

// The probability of a logit relative to that of the highest logit. `scale` is 1 / temperature. The
// difference is computed first, so that a tiny temperature cannot cause an overflow.
__device__ __forceinline__ float Weight(float logit, float highest, float scale) {
  return isnan(logit) ? 0.0f : expf((logit - highest) * scale);
}

__device__ __forceinline__ uint64_t Fixed(float weight) {
  return __float2ull_rn(weight * static_cast<float>(kFixedOne));
}

// Calls f(token, logit) for the tokens [begin, end) of a row, divided among the threads of the
// block.
template <class F>
__device__ __forceinline__ void ForRange(const float* row, int32_t begin, int32_t end, F f) {
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const auto threads = static_cast<int32_t>(blockDim.x);
  int32_t rest = begin;
  if ((reinterpret_cast<uintptr_t>(row + begin) & 15) == 0) {
    const auto* packed = reinterpret_cast<const float4*>(row + begin);
    const int32_t count = (end - begin) / 4;
#pragma unroll 4
    for (int32_t i = thread; i < count; i += threads) {
      const float4 four = packed[i];
      const int32_t token = begin + 4 * i;
      f(token, four.x);
      f(token + 1, four.y);
      f(token + 2, four.z);
      f(token + 3, four.w);
    }
    rest = begin + 4 * count;
  }
  for (int32_t token = rest + thread; token < end; token += threads) f(token, row[token]);
}

struct Add {
  __device__ uint64_t operator()(uint64_t a, uint64_t b) const { return a + b; }
};

struct Highest {
  __device__ uint64_t operator()(uint64_t a, uint64_t b) const { return a > b ? a : b; }
};

// Reduces one value of every thread with `join`, whose neutral element is 0. Thread 0 gets the
// result.
template <class Join>
__device__ __forceinline__ uint64_t BlockReduce(uint64_t value, Join join) {
  __shared__ uint64_t of_warp[32];
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t warp = threadIdx.x / 32;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value = join(value, __shfl_xor_sync(0xffffffffu, value, offset));
  }
  if (lane == 0) of_warp[warp] = value;
  __syncthreads();
  if (warp == 0) {
    value = lane < blockDim.x / 32 ? of_warp[lane] : 0;
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
      value = join(value, __shfl_xor_sync(0xffffffffu, value, offset));
    }
  }
  __syncthreads();
  return value;
}

// Returns whether this is the last of `blocks` thread blocks to call. The global writes that thread
// 0 of each block made before are visible to the last block. The counter is 0 again afterwards.
__device__ __forceinline__ bool IsLastBlock(uint32_t* counter, uint32_t blocks) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicInc(counter, blocks - 1) == blocks - 1;
    __threadfence();
  }
  __syncthreads();
  return last;
}

}  // namespace baton::cuda
