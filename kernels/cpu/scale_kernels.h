#pragma once

#include "kernels/cpu/kernel_table.h"

namespace baton::cpu {

// Brings the scales of StoredScales into the form of PanelView, with the vectors of instruction set
// S.
template <class S>
struct ScaleKernels {
  using F = typename S::F;
  using I = typename S::I;

  static void ExpandScales(const StoredScales& stored, int64_t panel, float* to) {
    const std::byte* scales = stored.data + static_cast<size_t>(panel) * stored.panel_bytes;
    const std::byte* zeros = scales + ScaleBytes(stored);
    switch (stored.form) {
      case ScaleForm::kF32:
        return Expand(stored, zeros, to, [&](int64_t set) {
          return S::Load(reinterpret_cast<const float*>(scales) + 16 * set);
        });
      case ScaleForm::kOneF32:
        return Expand(stored, zeros, to, [&](int64_t set) {
          return S::Set(reinterpret_cast<const float*>(scales)[set]);
        });
      case ScaleForm::kF16:
        return Expand(stored, zeros, to, [&](int64_t set) {
          return S::LoadHalf(reinterpret_cast<const uint16_t*>(scales) + 16 * set);
        });
      case ScaleForm::kBF16:
        return Expand(stored, zeros, to, [&](int64_t set) {
          return S::LoadBf16(reinterpret_cast<const uint16_t*>(scales) + 16 * set);
        });
      case ScaleForm::kFp8:
        return Expand(stored, zeros, to, [&](int64_t set) {
          const F numbers = S::Mul(S::LoadFp8(scales + 16 * set), S::Set(256.0f));
          return S::Div(numbers, S::Set(stored.divisor));
        });
      case ScaleForm::kE8m0:
        return Expand(stored, zeros, to, [&](int64_t set) {
          // An exponent of 0 is 2^-127, which as a float is not normalised.
          const I bits = S::template ShiftLeft<23>(S::LoadBytes(scales + 16 * set));
          return S::FromBits(S::MaxInt(bits, S::SetInt(1 << 22)));
        });
      case ScaleForm::kSuper8:
        return ExpandSuper8(stored, scales, to);
      case ScaleForm::kSuper6:
        return ExpandSuper6(stored, scales, to);
      case ScaleForm::kSuper4:
        return ExpandSuper4(stored, scales, to);
    }
  }

 private:
  // Writes the scales that scale(set) returns, and the minima.
  template <class Scale>
  [[gnu::always_inline]] static void Expand(const StoredScales& stored,
                                            const std::byte* zeros,
                                            float* to,
                                            const Scale& scale) {
    const F factor = S::Set(stored.factor);
    if (stored.zero_bits == 0) {
      for (int64_t set = 0; set < stored.sets; ++set) {
        S::Store(to + 16 * set, S::Mul(scale(set), factor));
      }
      return;
    }
    // Added to the bits of 2^23, an integer becomes 2^23 + itself.
    const I two_23 = S::Bits(S::Set(0x1p23f));
    const F offset = S::Set(0x1p23f + static_cast<float>(stored.zero_offset));
    for (int64_t set = 0; set < stored.sets; ++set, to += 32) {
      const F value = S::Mul(scale(set), factor);
      const I zero = stored.zero_bits == 4 ? Nibble(zeros, set) : S::LoadBytes(zeros + 16 * set);
      S::Store(to, value);
      S::Store(to + 16, S::Mul(value, S::Sub(offset, S::FromBits(S::AddInt(two_23, zero)))));
    }
  }

  // Factors [index] of 16 outputs.
  static F Factors(const std::byte* from, int index) {
    return S::LoadHalf(reinterpret_cast<const uint16_t*>(from) + 16 * index);
  }

  // Products of factors in f16 and integers of up to 8 bits, which f32 holds exactly. Within the
  // bits of 2^(23 − place), an integer that begins at bit `place` becomes that number + itself. One
  // fused operation multiplies and subtracts the number.
  template <int kPlace>
  struct Products {
    static constexpr float kBase = 0x1p23f / static_cast<float>(1 << kPlace);
    F factors, less;
    explicit Products(F of) : factors(of), less(S::Mul(of, S::Set(-kBase))) {}
    // Of the integers `bits` & `mask`.
    [[gnu::always_inline]] F operator()(I bits, int32_t mask) const {
      const I within = S::OrMasked(S::Bits(S::Set(kBase)), bits, S::SetInt(mask));
      return S::Fma(factors, S::FromBits(within), less);
    }
  };

  static void ExpandSuper8(const StoredScales& stored, const std::byte* from, float* to) {
    for (int64_t super = 0; super < stored.sets / stored.super_sets; ++super) {
      const F factors = Factors(from, 0);
      from += 32;
      for (int64_t set = 0; set < stored.super_sets; ++set, from += 16, to += 16) {
        S::Store(to, S::Mul(factors, S::FromInt(S::LoadSignedBytes(from))));
      }
    }
  }

  static void ExpandSuper6(const StoredScales& stored, const std::byte* from, float* to) {
    for (int64_t super = 0; super < stored.sets / stored.super_sets; ++super, from += 256) {
      const I high = S::LoadInt(from + 192);
      ExpandEight(Factors(from, 0), S::LoadInt(from + 64), high, to);
      ExpandEight(
          Factors(from, 1), S::LoadInt(from + 128), S::template ShiftLeft<4>(high), to + 16);
      to += 256;
    }
  }
  // Writes 8 sets, 32 floats apart. Bits 4 and 5 of the bytes of `high` belong to the low nibbles
  // of `low`, bits 6 and 7 to the high ones.
  static void ExpandEight(F factors, I low, I high, float* to) {
    const Products<0> first(factors);
    const Products<8> second(factors);
    const Products<16> third(factors);
    for (int half = 0; half < 2; ++half, to += 128) {
      const I nibbles = half == 0 ? low : S::template ShiftRight<4>(low);
      const I bits = half == 0 ? high : S::template ShiftRight<2>(high);
      const I six =
          S::OrMasked(S::And(nibbles, S::SetInt(0x0f0f0f0f)), bits, S::SetInt(0x30303030));
      S::Store(to, first(six, 0xff));
      S::Store(to + 32, second(six, 0xff00));
      S::Store(to + 64, third(six, 0xff0000));
      S::Store(to + 96, third(S::template ShiftRight<8>(six), 0xff0000));
    }
  }

  static void ExpandSuper4(const StoredScales& stored, const std::byte* from, float* to) {
    for (int64_t super = 0; super < stored.sets / stored.super_sets; ++super) {
      const Products<0> scales(Factors(from, 0));
      const Products<4> minima(Factors(from, 1));
      from += 64;
      for (int64_t set = 0; set < stored.super_sets; ++set, from += 16) {
        const I pairs = S::LoadBytes(from);
        float* const at = to + set / 2 * 64 + set % 2 * 16;
        S::Store(at, scales(pairs, 15));
        S::Store(at + 32, minima(pairs, 0xf0));
      }
      to += stored.super_sets * 32;
    }
  }

  // Integers of 4 bits of set `set`.
  static I Nibble(const std::byte* words, int64_t set) {
    const I word = S::LoadInt(words + set / 8 * 64);
    return S::And(S::ShiftRightBy(word, static_cast<int>(set % 8) * 4), S::SetInt(15));
  }
};

}  // namespace baton::cpu
