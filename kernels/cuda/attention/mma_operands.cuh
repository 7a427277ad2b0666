#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/primitives/fp8.cuh"

// Loads, mma instructions and reductions over lanes for attention by warps (decode_warp.cuh).
namespace baton::cuda {

__device__ __forceinline__ uint4 Load16(const std::byte* from) {
  uint4 x;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(from));
  return x;
}

// mma.m16n8k16 on operands in bf16, or in half precision.
template <bool kHalves>
__device__ __forceinline__ void Multiply(
    float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  if constexpr (kHalves) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
}

// Transposes an 8 × 8 matrix of bf16 in a warp: each thread holds row g and columns 2 c and 2 c +
// 1.
__device__ __forceinline__ uint32_t Transpose(uint32_t x) {
  uint32_t y;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

__device__ __forceinline__ uint32_t Word(const uint4& x, int i) {
  return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
}

template <bool kHalves>
__device__ __forceinline__ uint32_t PackPair(float low, float high) {
  if constexpr (kHalves) {
    const __half2 halves = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&halves);
  }
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Converts eight numbers in bf16 or fp8 to mma operands.
__device__ __forceinline__ uint4 Operand(const uint4& bf16) {
  return bf16;
}
__device__ __forceinline__ uint4 Operand(const uint2& fp8) {
  const uint2 low = Fp8ToHalf(fp8.x);
  const uint2 high = Fp8ToHalf(fp8.y);
  return make_uint4(low.x, low.y, high.x, high.y);
}

__device__ __forceinline__ uint2 Load8Bytes(const std::byte* from) {
  uint2 x;
  asm volatile("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
               : "=r"(x.x), "=r"(x.y)
               : "l"(from));
  return x;
}

// Consecutive rows of one head in global memory, or in shared memory. Offsets are in bytes.
struct RowsInMemory {
  static constexpr bool kInBanks = false;
  const std::byte* at;

  __device__ __forceinline__ uint4 Take16(int offset) const { return Load16(at + offset); }
  __device__ __forceinline__ uint2 Take8(int offset) const { return Load8Bytes(at + offset); }
};
struct RowsInShared {
  static constexpr bool kInBanks = true;
  uint32_t at;

  __device__ __forceinline__ uint4 Take16(int offset) const {
    uint4 x;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(at + static_cast<uint32_t>(offset))
                 : "memory");
    return x;
  }
};

template <class Group>
__device__ __forceinline__ void SwapIf(bool swap, Group& a, Group& b) {
  const Group before = a;
  a = swap ? b : a;
  b = swap ? before : b;
}

// The maximum, and the sum, over the eight lanes with the same lane % 4, in each of them.
__device__ __forceinline__ float LargestOfColumn(float x) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, step));
  return x;
}
__device__ __forceinline__ float SumOfColumn(float x) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

// Converts eight numbers from bf16 to half precision.
__device__ __forceinline__ uint4 ToHalf(const uint4& bf16) {
  const uint32_t in[4] = {bf16.x, bf16.y, bf16.z, bf16.w};
  uint32_t out[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&in[i]));
    out[i] = PackPair<true>(pair.x, pair.y);
  }
  return make_uint4(out[0], out[1], out[2], out[3]);
}

}  // namespace baton::cuda
