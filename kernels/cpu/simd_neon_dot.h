#pragma once

#include "kernels/cpu/simd_neon.h"

namespace baton::cpu {
namespace {

// NEON with dot products of four 8-bit integers (FEAT_DotProd). The 16-bit activations are taken
// apart: `high` has the upper bytes, signed, and `low` the lower bytes. Lane kLane of both has the
// four inputs of a vector of weights.
struct NeonDotProd : Neon {
  // The most rows of a tile of quantised weights: 16 of 32 registers are sums.
  static constexpr int kDotTileRows = 2;

  // Four weights of each of 16 outputs, as bytes.
  using W = Four<int8x16_t>;

  // 16 activations of one row.
  struct Inputs {
    int8x16_t high;
    uint8x16_t low;
  };
  // Adds up to Σ weight · activation.
  struct Sums {
    I high, low;
  };

  // Loads 16 activations; `order` says which input is at which byte.
  static Inputs LoadInputs(const int16_t* p, const uint8_t (&order)[16]) {
    const uint8x16_t first = vreinterpretq_u8_s16(vld1q_s16(p));
    const uint8x16_t last = vreinterpretq_u8_s16(vld1q_s16(p + 8));
    const uint8x16_t at = vld1q_u8(order);
    return {vreinterpretq_s8_u8(vqtbl1q_u8(vuzp2q_u8(first, last), at)),
            vqtbl1q_u8(vuzp1q_u8(first, last), at)};
  }
  static W Bytes(I words) {
    return Each([](auto w) { return vreinterpretq_s8_s32(w); }, words);
  }
  static W LowNibbles(I words) {
    return Each(
        [](auto w) {
          return vreinterpretq_s8_u8(vandq_u8(vreinterpretq_u8_s32(w), vdupq_n_u8(15)));
        },
        words);
  }
  static W HighNibbles(I words) {
    return Each([](auto w) { return vreinterpretq_s8_u8(vshrq_n_u8(vreinterpretq_u8_s32(w), 4)); },
                words);
  }

  static Sums Zero() { return {SetInt(0), SetInt(0)}; }
  template <int kLane>
  static I AddHigh(I sums, const W& weights, const Inputs& x) {
    return Each(
        [&](auto sum, auto w) { return vdotq_laneq_s32(sum, w, x.high, kLane); }, sums, weights);
  }
  // For weights from 0 to 127.
  template <int kLane>
  static I AddLowUnsigned(I sums, const W& weights, const Inputs& x) {
    return Each(
        [&](auto sum, auto w) {
          return vreinterpretq_s32_u32(
              vdotq_laneq_u32(vreinterpretq_u32_s32(sum), vreinterpretq_u8_s8(w), x.low, kLane));
        },
        sums,
        weights);
  }
  // Without a product of a signed and an unsigned byte: low = (low − 128) + 128.
  template <int kLane>
  static I AddLow(I sums, const W& weights, const Inputs& x) {
    const auto less = vreinterpretq_s8_u8(veorq_u8(x.low, vdupq_n_u8(0x80)));
    const int8x16_t half = vdupq_n_s8(64);
    return Each(
        [&](auto sum, auto w) {
          return vdotq_s32(vdotq_s32(vdotq_laneq_s32(sum, w, less, kLane), w, half), w, half);
        },
        sums,
        weights);
  }
  static F Total(const Sums& sums, int32_t start) {
    const int32x4_t from = vdupq_n_s32(start);
    return Each(
        [&](auto high, auto low) {
          return vcvtq_f32_s32(vaddq_s32(vaddq_s32(vshlq_n_s32(high, 8), low), from));
        },
        sums.high,
        sums.low);
  }
};

}  // namespace
}  // namespace baton::cpu
