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

  // Integers of 4 bits of set `set`.
  static I Nibble(const std::byte* words, int64_t set) {
    const I word = S::LoadInt(words + set / 8 * 64);
    return S::And(S::ShiftRightBy(word, static_cast<int>(set % 8) * 4), S::SetInt(15));
  }
};

}  // namespace baton::cpu
