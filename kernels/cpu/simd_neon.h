#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/kernel_table.h"

namespace baton::cpu {
namespace {

// The vectors of simd_portable.h as four vectors of 4 lanes, with the NEON that every 64-bit Arm
// processor has.
struct Neon {
  static constexpr int kTileVectors = 6;
  static constexpr int kPackedTileRows = 3;
  static constexpr int kPackedRows = kTileRows;
  static constexpr int kFloatTileRows = 6;

  template <class V>
  struct Four {
    V a, b, c, d;
  };
  using F = Four<float32x4_t>;
  using I = Four<int32x4_t>;
  // Sums of products, whose neighbours are yet to be added: `first` has those of lanes 0, 1, 4, 5,
  // 8, 9, 12, 13, two for each lane, `second` those of the other lanes. So a product needs no
  // addition of its own.
  struct D {
    I first, second;
  };

  template <class Op, class... V>
  [[gnu::always_inline]] static auto Each(const Op& op, const V&... v) {
    return Four<decltype(op(v.a...))>{op(v.a...), op(v.b...), op(v.c...), op(v.d...)};
  }

  static F Set(float x) {
    const float32x4_t v = vdupq_n_f32(x);
    return {v, v, v, v};
  }
  static F Load(const float* p) {
    return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
  }
  static F LoadPart(const float* p, int n) {
    float lanes[16] = {};
    for (int i = 0; i < n; ++i) lanes[i] = p[i];
    return Load(lanes);
  }
  static void Store(float* p, F v) {
    vst1q_f32(p, v.a);
    vst1q_f32(p + 4, v.b);
    vst1q_f32(p + 8, v.c);
    vst1q_f32(p + 12, v.d);
  }
  static void StorePart(float* p, F v, int n) {
    float lanes[16];
    Store(lanes, v);
    for (int i = 0; i < n; ++i) p[i] = lanes[i];
  }
  static F Add(F x, F y) {
    return Each([](auto a, auto b) { return vaddq_f32(a, b); }, x, y);
  }
  static F Sub(F x, F y) {
    return Each([](auto a, auto b) { return vsubq_f32(a, b); }, x, y);
  }
  static F Mul(F x, F y) {
    return Each([](auto a, auto b) { return vmulq_f32(a, b); }, x, y);
  }
  static F Div(F x, F y) {
    return Each([](auto a, auto b) { return vdivq_f32(a, b); }, x, y);
  }
  static F Fma(F x, F y, F z) {
    return Each([](auto a, auto b, auto c) { return vfmaq_f32(c, a, b); }, x, y, z);
  }
  // Not FMAX and FMIN, which give NaN where one operand is NaN.
  static F Max(F x, F y) {
    return Each([](auto a, auto b) { return Higher(a, b); }, x, y);
  }
  static F Min(F x, F y) {
    return Each([](auto a, auto b) { return vbslq_f32(vcltq_f32(a, b), a, b); }, x, y);
  }
  static F KeepFrom(F limit, F x, F v) {
    return Each(
        [](auto l, auto a, auto kept) {
          return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(kept), vcltq_f32(a, l)));
        },
        limit,
        x,
        v);
  }
  static F Select(int first, int last, F x, F y) {
    const int32x4_t from = vdupq_n_s32(first);
    const int32x4_t to = vdupq_n_s32(last);
    return Each(
        [&](auto lane, auto a, auto b) {
          return vbslq_f32(vandq_u32(vcgeq_s32(lane, from), vcltq_s32(lane, to)), a, b);
        },
        LaneNumbers(),
        x,
        y);
  }
  static float Sum(F v) {
    const float32x4_t four = vaddq_f32(vaddq_f32(v.a, v.c), vaddq_f32(v.b, v.d));
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
  }
  static float MaxLane(F v) {
    const float32x4_t four = Higher(Higher(v.a, v.c), Higher(v.b, v.d));
    const float32x4_t two = Higher(four, vextq_f32(four, four, 2));
    return vgetq_lane_f32(Higher(two, vextq_f32(two, two, 1)), 0);
  }

  static F LoadHalf(const uint16_t* p) {
    return Each([](auto h) { return vcvt_f32_f16(vreinterpret_f16_u16(h)); }, LoadNarrow(p));
  }
  static F LoadBf16(const uint16_t* p) {
    return Each([](auto h) { return vreinterpretq_f32_u32(vshll_n_u16(h, 16)); }, LoadNarrow(p));
  }
  static F LoadFp8(const std::byte* p) {
    const int8x16_t bytes = vld1q_s8(reinterpret_cast<const int8_t*>(p));
    const auto half = [](int8x8_t eight) {
      const int16x8_t wide = vshlq_n_s16(vmovl_s8(eight), 7);
      const int16x8_t kept = vdupq_n_s16(static_cast<int16_t>(0xbf80));
      return vreinterpretq_f16_s16(vandq_s16(wide, kept));
    };
    const float16x8_t low = half(vget_low_s8(bytes));
    const float16x8_t high = half(vget_high_s8(bytes));
    return {vcvt_f32_f16(vget_low_f16(low)),
            vcvt_f32_f16(vget_high_f16(low)),
            vcvt_f32_f16(vget_low_f16(high)),
            vcvt_f32_f16(vget_high_f16(high))};
  }
  static void StoreHalf(uint16_t* p, F v) {
    StoreNarrow(p, Each([](auto f) { return vreinterpret_u16_f16(vcvt_f16_f32(f)); }, v));
  }
  static void StoreBf16(uint16_t* p, F v) {
    StoreNarrow(p, Each([](auto f) { return RoundBf16(f); }, v));
  }

  static I SetInt(int32_t x) {
    const int32x4_t v = vdupq_n_s32(x);
    return {v, v, v, v};
  }
  static I LoadInt(const void* p) {
    const auto* from = static_cast<const uint8_t*>(p);
    return {LoadFour(from), LoadFour(from + 16), LoadFour(from + 32), LoadFour(from + 48)};
  }
  static I LoadSignedBytes(const std::byte* p) {
    const int8x16_t bytes = vld1q_s8(reinterpret_cast<const int8_t*>(p));
    const int16x8_t low = vmovl_s8(vget_low_s8(bytes));
    const int16x8_t high = vmovl_s8(vget_high_s8(bytes));
    return {vmovl_s16(vget_low_s16(low)),
            vmovl_s16(vget_high_s16(low)),
            vmovl_s16(vget_low_s16(high)),
            vmovl_s16(vget_high_s16(high))};
  }
  static I LoadBytes(const std::byte* p) {
    const uint8x16_t bytes = vld1q_u8(reinterpret_cast<const uint8_t*>(p));
    const uint16x8_t low = vmovl_u8(vget_low_u8(bytes));
    const uint16x8_t high = vmovl_u8(vget_high_u8(bytes));
    return {vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))),
            vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(low))),
            vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))),
            vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(high)))};
  }
  static I Bits(F v) {
    return Each([](auto f) { return vreinterpretq_s32_f32(f); }, v);
  }
  static F FromBits(I v) {
    return Each([](auto i) { return vreinterpretq_f32_s32(i); }, v);
  }
  static I AddInt(I x, I y) {
    return Each([](auto a, auto b) { return vaddq_s32(a, b); }, x, y);
  }
  static I SubInt(I x, I y) {
    return Each([](auto a, auto b) { return vsubq_s32(a, b); }, x, y);
  }
  static I MaxInt(I x, I y) {
    return Each([](auto a, auto b) { return vmaxq_s32(a, b); }, x, y);
  }
  static I And(I x, I y) {
    return Each([](auto a, auto b) { return vandq_s32(a, b); }, x, y);
  }
  static I OrMasked(I x, I y, I mask) {
    return Each([](auto a, auto b, auto m) { return vorrq_s32(a, vandq_s32(b, m)); }, x, y, mask);
  }
  static F FromInt(I v) {
    return Each([](auto i) { return vcvtq_f32_s32(i); }, v);
  }
  template <int kBits>
  static I ShiftLeft(I v) {
    return Each([](auto i) { return vshlq_n_s32(i, kBits); }, v);
  }
  template <int kBits>
  static I ShiftRight(I v) {
    return Each(
        [](auto i) { return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(i), kBits)); },
        v);
  }
  static I ShiftRightBy(I v, int bits) {
    const int32x4_t count = vdupq_n_s32(-bits);
    return Each(
        [&](auto i) { return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(i), count)); },
        v);
  }
  template <int kBits>
  static I ShiftRight16(I v) {
    return Each(
        [](auto i) { return vreinterpretq_s32_u16(vshrq_n_u16(vreinterpretq_u16_s32(i), kBits)); },
        v);
  }
  static int32_t SumInt(I v) {
    return vaddvq_s32(vaddq_s32(vaddq_s32(v.a, v.b), vaddq_s32(v.c, v.d)));
  }
  static int32_t MaxLaneInt(I v) {
    return vmaxvq_s32(vmaxq_s32(vmaxq_s32(v.a, v.b), vmaxq_s32(v.c, v.d)));
  }
  static void StoreInt16(int16_t* p, I v) {
    vst1_s16(p, vmovn_s32(v.a));
    vst1_s16(p + 4, vmovn_s32(v.b));
    vst1_s16(p + 8, vmovn_s32(v.c));
    vst1_s16(p + 12, vmovn_s32(v.d));
  }

  static D SetDot(int32_t x) {
    const int32x4_t v = vzip1q_s32(vdupq_n_s32(x), vdupq_n_s32(0));
    return {{v, v, v, v}, {v, v, v, v}};
  }
  static D AddDot(const D& x, const D& y) {
    return {AddInt(x.first, y.first), AddInt(x.second, y.second)};
  }
  static F ToFloat(const D& v) {
    return Each([](auto a, auto b) { return vcvtq_f32_s32(vpaddq_s32(a, b)); }, v.first, v.second);
  }
  static D DotPairs(const D& acc, I x, I y) {
    return {Each(
                [](auto sum, auto a, auto b) {
                  return vmlal_s16(sum, vget_low_s16(Halves(a)), vget_low_s16(Halves(b)));
                },
                acc.first,
                x,
                y),
            Each([](auto sum, auto a, auto b) { return vmlal_high_s16(sum, Halves(a), Halves(b)); },
                 acc.second,
                 x,
                 y)};
  }
  [[gnu::always_inline]] static I Nibbles(I v, int index) {
    return Each([index](auto i) { return NibblesOf(vreinterpretq_u16_s32(i), index); }, v);
  }
  static void Pin(D& v) {
    asm volatile(""
                 : "+w"(v.first.a),
                   "+w"(v.first.b),
                   "+w"(v.first.c),
                   "+w"(v.first.d),
                   "+w"(v.second.a),
                   "+w"(v.second.b),
                   "+w"(v.second.c),
                   "+w"(v.second.d));
  }
  static I EvenBytes(I v) {
    return Each(
        [](auto i) { return vreinterpretq_s32_s16(vshrq_n_s16(vshlq_n_s16(Halves(i), 8), 8)); }, v);
  }
  static I OddBytes(I v) {
    return Each([](auto i) { return vreinterpretq_s32_s16(vshrq_n_s16(Halves(i), 8)); }, v);
  }
  static I TableBytes(I v, const int8_t (&table)[16]) {
    const int8x16_t numbers = vld1q_s8(table);
    return Each(
        [&](auto i) { return vreinterpretq_s32_s8(vqtbl1q_s8(numbers, vreinterpretq_u8_s32(i))); },
        v);
  }

 protected:
  static void StoreNarrow(uint16_t* p, Four<uint16x4_t> v) {
    vst1_u16(p, v.a);
    vst1_u16(p + 4, v.b);
    vst1_u16(p + 8, v.c);
    vst1_u16(p + 12, v.d);
  }

 private:
  static float32x4_t Higher(float32x4_t a, float32x4_t b) {
    return vbslq_f32(vcgtq_f32(a, b), a, b);
  }
  static I LaneNumbers() {
    static constexpr int32_t kNumbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return LoadInt(kNumbers);
  }
  static int32x4_t LoadFour(const uint8_t* p) { return vreinterpretq_s32_u8(vld1q_u8(p)); }
  static Four<uint16x4_t> LoadNarrow(const uint16_t* p) {
    return {vld1_u16(p), vld1_u16(p + 4), vld1_u16(p + 8), vld1_u16(p + 12)};
  }
  static int16x8_t Halves(int32x4_t v) { return vreinterpretq_s16_s32(v); }
  [[gnu::always_inline]] static int32x4_t NibblesOf(uint16x8_t v, int index) {
    const uint16x8_t mask = vdupq_n_u16(15);
    if (index == 0) return vreinterpretq_s32_u16(vandq_u16(v, mask));
    if (index == 1) return vreinterpretq_s32_u16(vandq_u16(vshrq_n_u16(v, 4), mask));
    if (index == 2) return vreinterpretq_s32_u16(vandq_u16(vshrq_n_u16(v, 8), mask));
    return vreinterpretq_s32_u16(vshrq_n_u16(v, 12));
  }
  static uint16x4_t RoundBf16(float32x4_t f) {
    const uint32x4_t bits = vreinterpretq_u32_f32(f);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
    return vshrn_n_u32(vbslq_u32(vceqq_f32(f, f), rounded, quiet), 16);
  }
};

}  // namespace
}  // namespace baton::cpu
