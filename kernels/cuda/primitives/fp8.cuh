#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <type_traits>

// Conversions of FP8 numbers in the format E4M3 ("FP8 Formats for Deep Learning", arXiv
// 2209.05433). GPUs from sm_89 on convert in hardware.
namespace baton::cuda {

inline constexpr float kLargestFp8 = 448.0f;

// Whether `Number`, the number type of a kernel's operands, is E4M3. FP8 operands have scales.
template <class Number>
inline constexpr bool kIsFp8 = std::is_same_v<Number, __nv_fp8_e4m3>;

// Rounds to nearest, ties to even. A number that is too large becomes ±448 (kLargestFp8). `a` is in
// the lowest byte.
__device__ __forceinline__ uint32_t PackFp8(float a, float b, float c, float d) {
  const uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, __NV_E4M3);
  const uint32_t high = __nv_cvt_float2_to_fp8x2(make_float2(c, d), __NV_SATFINITE, __NV_E4M3);
  return low | high << 16;
}

__device__ __forceinline__ uint2 PackFp8(const float (&from)[8], float factor) {
  return make_uint2(
      PackFp8(from[0] * factor, from[1] * factor, from[2] * factor, from[3] * factor),
      PackFp8(from[4] * factor, from[5] * factor, from[6] * factor, from[7] * factor));
}

// Converts four numbers to half precision, which represents every E4M3 number exactly.
__device__ __forceinline__ uint2 Fp8ToHalf(uint32_t from) {
  const __half2_raw low =
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(from & 0xffff), __NV_E4M3);
  const __half2_raw high =
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(from >> 16), __NV_E4M3);
  return make_uint2(low.x | static_cast<uint32_t>(low.y) << 16,
                    high.x | static_cast<uint32_t>(high.y) << 16);
}

__device__ __forceinline__ void UnpackFp8(uint32_t from, float* to) {
  const __half2 low =
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(from & 0xffff), __NV_E4M3);
  const __half2 high =
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(from >> 16), __NV_E4M3);
  const float2 first = __half22float2(low);
  const float2 second = __half22float2(high);
  to[0] = first.x;
  to[1] = first.y;
  to[2] = second.x;
  to[3] = second.y;
}

}  // namespace baton::cuda
