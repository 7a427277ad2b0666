#pragma once

#include "kernels/cpu/matmul_kernels.h"

namespace baton::cpu {

// FP8 numbers, and the scales of StoredScales, with the vectors of instruction set S.
template <class S>
struct ScaleKernels {
  using F = typename S::F;
  using I = typename S::I;
  using Base = MatMulKernels<S>;

  // The FP8 numbers (E4M3) of byte `index` of each word. `index` is constant after inlining. No
  // number is NaN.
  [[gnu::always_inline]] static F Fp8Number(I words, int index) {
    const I top = index == 0   ? S::template ShiftLeft<24>(words)
                  : index == 1 ? S::template ShiftLeft<16>(words)
                  : index == 2 ? S::template ShiftLeft<8>(words)
                               : words;
    return Fp8OfTop(top);
  }
  // The same of the highest byte. Its exponent and mantissa, as those of a float, are 2^120 too
  // small.
  [[gnu::always_inline]] static F Fp8OfTop(I top) {
    const I magnitude = S::And(S::template ShiftRight<4>(top), S::SetInt(0x07f00000));
    const I sign = S::And(top, S::SetInt(static_cast<int32_t>(0x80000000)));
    return S::Mul(S::FromBits(S::AddInt(magnitude, sign)), S::Set(0x1p120f));
  }

  // Set `set` of 16 scales that are one byte or half a byte each, of words of several sets.
  template <int kBits>
  static I SmallOf(const std::byte* words, int64_t set) {
    constexpr int64_t kInWord = 32 / kBits;
    const auto shift = static_cast<int32_t>(set % kInWord) * kBits;
    int32_t lanes[16];
    __builtin_memcpy(lanes, words + set / kInWord * 64, sizeof(lanes));
    for (int32_t& lane : lanes) {
      lane = static_cast<int32_t>(static_cast<uint32_t>(lane) >> shift & ((1u << kBits) - 1));
    }
    return S::LoadInt(lanes);
  }

  static F StoredScale(const StoredScales& stored, const std::byte* scales, int64_t set) {
    switch (stored.form) {
      case ScaleForm::kF32:
        return Base::template LoadScale<true>(scales, static_cast<int>(set));
      case ScaleForm::kOneF32:
        return S::Set(reinterpret_cast<const float*>(scales)[set]);
      case ScaleForm::kF16:
        return Base::template LoadScale<false>(scales, static_cast<int>(set));
      case ScaleForm::kBF16:
        return S::LoadBf16(reinterpret_cast<const uint16_t*>(scales) + 16 * set);
      case ScaleForm::kFp8:
        return Fp8OfTop(S::template ShiftLeft<24>(SmallOf<8>(scales, set)));
      case ScaleForm::kE8m0:
        break;
    }
    // An exponent of 0 is 2^-127, which as a float is not normalised.
    const I bits = S::template ShiftLeft<23>(SmallOf<8>(scales, set));
    return S::FromBits(S::MaxInt(bits, S::SetInt(1 << 22)));
  }

  static void ExpandScales(const StoredScales& stored, int64_t panel, float* to) {
    const std::byte* scales = stored.data + static_cast<size_t>(panel) * stored.panel_bytes;
    const std::byte* zeros = scales + ScaleBytes(stored);
    const F factor = S::Set(stored.factor);
    // Added to the bits of 2^23, an integer becomes 2^23 + itself.
    const F two_23 = S::Set(0x1p23f);
    const F offset = S::Set(static_cast<float>(stored.zero_offset));
    for (int64_t set = 0; set < stored.sets; ++set) {
      F scale = StoredScale(stored, scales, set);
      if (stored.divisor != 1) scale = S::Div(scale, S::Set(stored.divisor));
      scale = S::Mul(scale, factor);
      S::Store(to, scale);
      to += 16;
      if (stored.zero_bits == 0) continue;
      const I integers = stored.zero_bits == 4 ? SmallOf<4>(zeros, set) : SmallOf<8>(zeros, set);
      const F zero = S::Sub(S::FromBits(S::AddInt(S::Bits(two_23), integers)), two_23);
      S::Store(to, S::Mul(scale, S::Sub(offset, zero)));
      to += 16;
    }
  }
};

}  // namespace baton::cpu
