#pragma once

#include <cuda_bf16.h>

namespace baton::cuda {

// Eight bf16 numbers that one 16-byte access loads or stores.
struct alignas(16) Packed8 {
  __nv_bfloat162 pairs[4];
};

// Loads a uint4, because the compiler would load a struct of four pairs one pair at a time.
__device__ __forceinline__ Packed8 Load8(const __nv_bfloat16* from) {
  const uint4 bits = *reinterpret_cast<const uint4*>(from);
  return *reinterpret_cast<const Packed8*>(&bits);
}

__device__ __forceinline__ void Store8(__nv_bfloat16* to, const Packed8& value) {
  *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(&value);
}

__device__ __forceinline__ void Unpack(const Packed8& from, float (&to)[8]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = __bfloat1622float2(from.pairs[i]);
    to[2 * i] = pair.x;
    to[2 * i + 1] = pair.y;
  }
}

__device__ __forceinline__ Packed8 Pack(const float (&from)[8]) {
  Packed8 to;
#pragma unroll
  for (int i = 0; i < 4; ++i) to.pairs[i] = __floats2bfloat162_rn(from[2 * i], from[2 * i + 1]);
  return to;
}

// Rounds the numbers as a store in bf16 and a load would.
__device__ __forceinline__ void RoundToBf16(float (&numbers)[8]) {
  Unpack(Pack(numbers), numbers);
}

// Eight consecutive numbers, stored as bf16 or float32, as float32.
__device__ __forceinline__ void Read8(const __nv_bfloat16* from, float (&to)[8]) {
  Unpack(Load8(from), to);
}
__device__ __forceinline__ void Read8(const float* from, float (&to)[8]) {
  const float4 low = *reinterpret_cast<const float4*>(from);
  const float4 high = *reinterpret_cast<const float4*>(from + 4);
  to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
  to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
}
__device__ __forceinline__ void Write8(__nv_bfloat16* to, const float (&from)[8]) {
  Store8(to, Pack(from));
}
__device__ __forceinline__ void Write8(float* to, const float (&from)[8]) {
  *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
  *reinterpret_cast<float4*>(to + 4) = make_float4(from[4], from[5], from[6], from[7]);
}

}  // namespace baton::cuda
