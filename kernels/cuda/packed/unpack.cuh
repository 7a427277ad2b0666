#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/packed/packed_format.h"

// From the numbers of a packed matrix to the registers of a tensor core's operand in bf16.
namespace baton::cuda {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// The bits of the bf16 numbers 2^126, 2^120 and 2^118, twice.
inline constexpr uint32_t kTwoTo126 = 0x7e807e80;
inline constexpr uint32_t kTwoTo120 = 0x7b807b80;
inline constexpr uint32_t kTwoTo118 = 0x7a807a80;

__device__ __forceinline__ uint32_t MultiplyPairs(uint32_t a, uint32_t b) {
  const __nv_bfloat162 product = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&a),
                                         *reinterpret_cast<const __nv_bfloat162*>(&b));
  return *reinterpret_cast<const uint32_t*>(&product);
}

__device__ __forceinline__ uint32_t SubtractPairs(uint32_t a, uint32_t b) {
  const __nv_bfloat162 rest = __hsub2(*reinterpret_cast<const __nv_bfloat162*>(&a),
                                      *reinterpret_cast<const __nv_bfloat162*>(&b));
  return *reinterpret_cast<const uint32_t*>(&rest);
}

// What a lane needs of a group for its two outputs, each twice in a register. The multipliers
// contain the powers of two that Unpack leaves out.
struct GroupOfLane {
  uint32_t multipliers[2];
  uint32_t zeros[2];  // in the form that Unpack subtracts; not for floating-point numbers
};

__device__ __forceinline__ uint32_t TwicePair(uint32_t half) {
  return half | half << 16;
}

// `pair` has the two scales as they are stored, the first one in the low bits.
template <DType kNumber, ScaleType kScale>
__device__ __forceinline__ void SetMultipliers(uint32_t pair, GroupOfLane& group) {
  if constexpr (kScale == ScaleType::kBF16) {
    group.multipliers[0] = __byte_perm(pair, pair, 0x1010);
    group.multipliers[1] = __byte_perm(pair, pair, 0x3232);
    if constexpr (kNumber == DType::kFp8) {
      group.multipliers[0] = MultiplyPairs(group.multipliers[0], kTwoTo120);
      group.multipliers[1] = MultiplyPairs(group.multipliers[1], kTwoTo120);
    }
  } else if constexpr (kScale == ScaleType::kE8m0) {
    // 2^(e - 127) · 2^126. PackedFormat has no e above 128.
    const uint32_t both = (__byte_perm(pair, 0, 0x4140) + 0x007e007e) << 7;
    group.multipliers[0] = __byte_perm(both, both, 0x1010);
    group.multipliers[1] = __byte_perm(both, both, 0x3232);
  } else {
    // A scale in FP8, which is not negative, has the bits of scale · 2^-120 in bf16. The factors of
    // outputs have the 2^8 that are missing to 2^126 (kFp8ScaleFactor).
    group.multipliers[0] =
        MultiplyPairs(MultiplyPairs(TwicePair((pair & 0x7f) << 4), kTwoTo120), kTwoTo118);
    group.multipliers[1] =
        MultiplyPairs(MultiplyPairs(TwicePair((pair >> 8 & 0x7f) << 4), kTwoTo120), kTwoTo118);
  }
}

// `pair` has the two zero points as they are stored: of 4 bits in a byte, or two bytes.
template <DType kNumber>
__device__ __forceinline__ void SetZeros(uint32_t pair, GroupOfLane& group) {
  if constexpr (kNumber == DType::kU4) {
    group.zeros[0] = 0x43004300 | TwicePair(pair & 15);
    group.zeros[1] = 0x43004300 | TwicePair(pair >> 4 & 15);
  } else if constexpr (kNumber == DType::kI8) {
    group.zeros[0] = 0x4b000000 | (pair & 0xff);
    group.zeros[1] = 0x4b000000 | (pair >> 8 & 0xff);
  }
}

// The numbers of one WGMMA: of `words`, 4-bit numbers have one, 8-bit numbers two.
template <DType kNumber>
inline constexpr int kWordsOfStep = kNumber == DType::kU4 || kNumber == DType::kFp4 ? 1 : 2;

// `constant` in a register that the compiler does not know: a LOP3 with two masks takes only one of
// them as an immediate, and the compiler would need a second LOP3. Blocks have one layer of
// threads.
__device__ __forceinline__ uint32_t Opaque(uint32_t constant) {
  return constant + (blockDim.z - 1);
}

// Two integers of 8 bits, in bytes `low` and `high` of a word, less the zero point, in bf16.
template <uint32_t kLow, uint32_t kHigh>
__device__ __forceinline__ uint32_t PairOfBytes(uint32_t word, uint32_t zero) {
  // 2^23 + the integer, in float32.
  const float base = __uint_as_float(zero);
  const float low = __uint_as_float(__byte_perm(word, 0x4b000000, 0x7650 | kLow)) - base;
  const float high = __uint_as_float(__byte_perm(word, 0x4b000000, 0x7650 | kHigh)) - base;
  // Integers of up to 8 bits are the upper halves of their float32.
  return __byte_perm(__float_as_uint(low), __float_as_uint(high), 0x7632);
}

// The lane's four registers of a left operand, from its words.
template <DType kNumber>
__device__ __forceinline__ void Unpack(const uint32_t (&words)[kWordsOfStep<kNumber>],
                                       const GroupOfLane& group,
                                       uint32_t (&held)[4]) {
  [[maybe_unused]] const uint32_t nibbles = Opaque(0x000f000f);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    uint32_t pair;
    if constexpr (kNumber == DType::kU4) {
      // 128 + the integer, in bf16.
      pair = SubtractPairs((words[0] >> (4 * i) & nibbles) | 0x43004300, group.zeros[i % 2]);
    } else if constexpr (kNumber == DType::kFp4) {
      // Sign, exponent and mantissa at their places in bf16: the number · 2^-126 (ArrangeFp4).
      if (i < 3) {
        pair = words[0] << (3 * i) & 0x81c081c0;
      } else {
        pair = (words[0] << 1 & 0x80008000) | (words[0] >> 5 & 0x01000100) |
               (words[0] >> 4 & 0x00c000c0);
      }
    } else if constexpr (kNumber == DType::kI8) {
      pair = i % 2 == 0 ? PairOfBytes<1, 3>(words[i / 2], group.zeros[0])
                        : PairOfBytes<0, 2>(words[i / 2], group.zeros[1]);
    } else {
      // The number · 2^-120.
      const uint32_t top = i % 2 == 0 ? words[i / 2] : words[i / 2] << 8;
      pair = (top & 0x80008000) | (top >> 4 & 0x07f007f0);
    }
    held[i] = MultiplyPairs(pair, group.multipliers[i % 2]);
  }
}

#endif

}  // namespace baton::cuda
