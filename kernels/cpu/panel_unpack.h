#pragma once

#include "kernels/cpu/kernel_table.h"

namespace baton::cpu {

// Takes the weights out of the words of quantised panels (packed_matrix.h), with the vectors of
// instruction set S. The words of a block are chunks: each has the weights of kPairs pairs of
// inputs in whole words.
template <class S>
struct PanelUnpack {
  using I = typename S::I;

  // Whether the integers are not negative: a zero point is subtracted from the sum of products.
  static constexpr bool IsUnsigned(PanelKind kind) {
    return kind == PanelKind::kNibble || kind == PanelKind::kFive || kind == PanelKind::kSix;
  }

  template <PanelKind kKind>
  static constexpr int kPairs = kKind == PanelKind::kByte   ? 2
                                : kKind == PanelKind::kFive ? 16
                                : kKind == PanelKind::kSix  ? 8
                                                            : 4;
  template <PanelKind kKind>
  static constexpr int64_t kChunkBytes = ValueBytesOfBlock(kKind) * kPairs<kKind> / 16;

  // The weights of pair `pair` of a chunk: each lane of the vector has two 16-bit integers. `pair`
  // is constant after inlining.
  template <PanelKind kKind>
  [[gnu::always_inline]] static I Pair(const std::byte* chunk, int pair) {
    if constexpr (kKind == PanelKind::kNibble) {
      return S::Nibbles(S::LoadInt(chunk), pair);
    } else if constexpr (kKind == PanelKind::kFive) {
      return Five(chunk, pair);
    } else if constexpr (kKind == PanelKind::kSix) {
      return Six(chunk, pair);
    } else if constexpr (kKind == PanelKind::kByte) {
      const I words = S::LoadInt(chunk);
      return pair == 0 ? S::EvenBytes(words) : S::OddBytes(words);
    } else {
      const I bytes = LookUp<kKind>(S::LoadInt(chunk), pair / 2);
      return pair % 2 == 0 ? S::EvenBytes(bytes) : S::OddBytes(bytes);
    }
  }

  // The numbers at the indices in the low (`nibble` 0) or high nibbles of each byte.
  template <PanelKind kKind>
  [[gnu::always_inline]] static I LookUp(I words, int nibble) {
    static_assert(kKind == PanelKind::kFp4 || kKind == PanelKind::kIQ4);
    const I mask = S::SetInt(0x0f0f0f0f);
    return S::TableBytes(S::And(nibble == 0 ? words : S::template ShiftRight<4>(words), mask),
                         kKind == PanelKind::kFp4 ? kTwiceFp4 : kIQ4Values);
  }

 private:
  // Word `index` of three or five.
  [[gnu::always_inline]] static I Word(const std::byte* chunk, int index) {
    return S::LoadInt(chunk + index * 64);
  }

  [[gnu::always_inline]] static I Five(const std::byte* chunk, int pair) {
    if (pair == 15) return Remainders(chunk);
    const I word = Word(chunk, pair / 3);
    const I mask = S::SetInt(0x001f001f);
    if (pair % 3 == 0) return S::And(word, mask);
    if (pair % 3 == 1) return S::And(S::template ShiftRight<6>(word), mask);
    return S::template ShiftRight16<11>(word);
  }
  // Bit 5 of each of five words.
  [[gnu::always_inline]] static I Remainders(const std::byte* chunk) {
    I bits = S::And(S::template ShiftRight<5>(Word(chunk, 0)), S::SetInt(0x00010001));
    bits = S::OrMasked(bits, S::template ShiftRight<4>(Word(chunk, 1)), S::SetInt(0x00020002));
    bits = S::OrMasked(bits, S::template ShiftRight<3>(Word(chunk, 2)), S::SetInt(0x00040004));
    bits = S::OrMasked(bits, S::template ShiftRight<2>(Word(chunk, 3)), S::SetInt(0x00080008));
    return S::OrMasked(bits, S::template ShiftRight<1>(Word(chunk, 4)), S::SetInt(0x00100010));
  }

  [[gnu::always_inline]] static I Six(const std::byte* chunk, int pair) {
    if (pair < 6) {
      const I word = Word(chunk, pair / 2);
      if (pair % 2 == 0) return S::And(word, S::SetInt(0x003f003f));
      return S::template ShiftRight16<10>(word);
    }
    const I low = S::And(S::template ShiftRight<6>(Word(chunk, pair - 6)), S::SetInt(0x000f000f));
    const I last = Word(chunk, 2);
    const I high = pair == 6 ? S::template ShiftRight<2>(last) : S::template ShiftRight<4>(last);
    return S::OrMasked(low, high, S::SetInt(0x00300030));
  }
};

}  // namespace baton::cpu
