#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace baton::cpu {
namespace {

// The vectors of simd_portable.h as two halves of 8 lanes, with AVX2, FMA and F16C.
struct Avx2 {
  static constexpr int kTileVectors = 6;
  static constexpr int kPackedTileRows = 4;
  static constexpr int kPackedRows = 8;
  static constexpr int kFloatTileRows = 6;

  struct F {
    __m256 low, high;
  };
  struct I {
    __m256i low, high;
  };
  typedef int32_t Lanes8 __attribute__((vector_size(32)));
  struct D {
    Lanes8 low, high;
  };

  static F Set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static F Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static F LoadPart(const float* p, int n) {
    const I mask = Mask(n);
    return {_mm256_maskload_ps(p, mask.low), _mm256_maskload_ps(p + 8, mask.high)};
  }
  static void Store(float* p, F a) {
    _mm256_storeu_ps(p, a.low);
    _mm256_storeu_ps(p + 8, a.high);
  }
  static void StorePart(float* p, F a, int n) {
    const I mask = Mask(n);
    _mm256_maskstore_ps(p, mask.low, a.low);
    _mm256_maskstore_ps(p + 8, mask.high, a.high);
  }
  static F Add(F a, F b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
  static F Sub(F a, F b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
  static F Mul(F a, F b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
  static F Div(F a, F b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
  static F Fma(F a, F b, F c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }
  static F Max(F a, F b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
  static F Min(F a, F b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
  static F KeepFrom(F limit, F x, F a) {
    return {_mm256_and_ps(a.low, _mm256_cmp_ps(x.low, limit.low, _CMP_NLT_UQ)),
            _mm256_and_ps(a.high, _mm256_cmp_ps(x.high, limit.high, _CMP_NLT_UQ))};
  }
  static F Select(int first, int last, F a, F b) {
    const I before_first = Mask(first);
    const I before_last = Mask(last);
    const __m256i low = _mm256_andnot_si256(before_first.low, before_last.low);
    const __m256i high = _mm256_andnot_si256(before_first.high, before_last.high);
    return {_mm256_blendv_ps(b.low, a.low, _mm256_castsi256_ps(low)),
            _mm256_blendv_ps(b.high, a.high, _mm256_castsi256_ps(high))};
  }
  static float Sum(F a) {
    const __m256 eight = _mm256_add_ps(a.low, a.high);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  static float MaxLane(F a) {
    const __m256 eight = _mm256_max_ps(a.low, a.high);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }

  static F LoadHalf(const uint16_t* p) {
    return {_mm256_cvtph_ps(LoadNarrow(p)), _mm256_cvtph_ps(LoadNarrow(p + 8))};
  }
  static F LoadBf16(const uint16_t* p) { return {Bf16(LoadNarrow(p)), Bf16(LoadNarrow(p + 8))}; }
  static F LoadFp8(const std::byte* p) {
    __m256i wide = _mm256_slli_epi16(_mm256_cvtepi8_epi16(LoadSixteen(p)), 7);
    wide = _mm256_and_si256(wide, _mm256_set1_epi16(static_cast<int16_t>(0xbf80)));
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(wide)),
            _mm256_cvtph_ps(_mm256_extracti128_si256(wide, 1))};
  }
  static void StoreHalf(uint16_t* p, F a) {
    StoreNarrow(p, _mm256_cvtps_ph(a.low, _MM_FROUND_TO_NEAREST_INT));
    StoreNarrow(p + 8, _mm256_cvtps_ph(a.high, _MM_FROUND_TO_NEAREST_INT));
  }
  static void StoreBf16(uint16_t* p, F a) {
    StoreNarrow(p, Low16(RoundBf16(a.low)));
    StoreNarrow(p + 8, Low16(RoundBf16(a.high)));
  }

  static I SetInt(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
  static I LoadInt(const void* p) {
    const auto* from = static_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(from), _mm256_loadu_si256(from + 1)};
  }
  static I LoadBytes(const std::byte* p) {
    const __m128i bytes = LoadSixteen(p);
    return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
  }
  static I LoadSignedBytes(const std::byte* p) {
    const __m128i bytes = LoadSixteen(p);
    return {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
  }
  static I Bits(F a) { return {_mm256_castps_si256(a.low), _mm256_castps_si256(a.high)}; }
  static F FromBits(I a) { return {_mm256_castsi256_ps(a.low), _mm256_castsi256_ps(a.high)}; }
  static I AddInt(I a, I b) {
    return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
  }
  static I SubInt(I a, I b) {
    return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
  }
  static I MaxInt(I a, I b) {
    return {_mm256_max_epi32(a.low, b.low), _mm256_max_epi32(a.high, b.high)};
  }
  static I And(I a, I b) {
    return {_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)};
  }
  static I OrMasked(I a, I b, I mask) {
    return {_mm256_or_si256(a.low, _mm256_and_si256(b.low, mask.low)),
            _mm256_or_si256(a.high, _mm256_and_si256(b.high, mask.high))};
  }
  static F FromInt(I a) { return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)}; }
  template <int kBits>
  static I ShiftLeft(I a) {
    return {_mm256_slli_epi32(a.low, kBits), _mm256_slli_epi32(a.high, kBits)};
  }
  template <int kBits>
  static I ShiftRight(I a) {
    return {_mm256_srli_epi32(a.low, kBits), _mm256_srli_epi32(a.high, kBits)};
  }
  static I ShiftRightBy(I a, int bits) {
    const __m128i count = _mm_cvtsi32_si128(bits);
    return {_mm256_srl_epi32(a.low, count), _mm256_srl_epi32(a.high, count)};
  }
  template <int kBits>
  static I ShiftRight16(I a) {
    return {_mm256_srli_epi16(a.low, kBits), _mm256_srli_epi16(a.high, kBits)};
  }
  static D SetDot(int32_t x) {
    const auto lanes = reinterpret_cast<Lanes8>(_mm256_set1_epi32(x));
    return {lanes, lanes};
  }
  static D AddDot(D a, D b) { return {a.low + b.low, a.high + b.high}; }
  static F ToFloat(D a) {
    return {_mm256_cvtepi32_ps(reinterpret_cast<__m256i>(a.low)),
            _mm256_cvtepi32_ps(reinterpret_cast<__m256i>(a.high))};
  }
  static int32_t SumInt(I a) {
    const __m256i eight = _mm256_add_epi32(a.low, a.high);
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
    return _mm_cvtsi128_si32(sum);
  }
  static int32_t MaxLaneInt(I a) {
    const __m256i eight = _mm256_max_epi32(a.low, a.high);
    __m128i max = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    max = _mm_max_epi32(max, _mm_shuffle_epi32(max, 0x4e));
    max = _mm_max_epi32(max, _mm_shuffle_epi32(max, 0xb1));
    return _mm_cvtsi128_si32(max);
  }
  static void StoreInt16(int16_t* p, I a) {
    StoreNarrow(p, Low16(a.low));
    StoreNarrow(p + 8, Low16(a.high));
  }
  static D DotPairs(D acc, I a, I b) {
    return {acc.low + reinterpret_cast<Lanes8>(_mm256_madd_epi16(a.low, b.low)),
            acc.high + reinterpret_cast<Lanes8>(_mm256_madd_epi16(a.high, b.high))};
  }
  [[gnu::always_inline]] static I Nibbles(I a, int index) {
    return {Nibbles(a.low, index), Nibbles(a.high, index)};
  }
  static void Pin(D& a) { asm volatile("" : "+x"(a.low), "+x"(a.high)); }
  template <class T>
  static void Keep(T& memory) {
    asm volatile("" : "+m"(memory));
  }
  static I EvenBytes(I a) {
    return {_mm256_srai_epi16(_mm256_slli_epi16(a.low, 8), 8),
            _mm256_srai_epi16(_mm256_slli_epi16(a.high, 8), 8)};
  }
  static I OddBytes(I a) { return {_mm256_srai_epi16(a.low, 8), _mm256_srai_epi16(a.high, 8)}; }
  static I TableBytes(I a, const int8_t (&table)[16]) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    const __m256i numbers = _mm256_broadcastsi128_si256(half);
    return {_mm256_shuffle_epi8(numbers, a.low), _mm256_shuffle_epi8(numbers, a.high)};
  }

 private:
  static __m128i LoadSixteen(const std::byte* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  [[gnu::always_inline]] static __m256i Nibbles(__m256i a, int index) {
    if (index == 3) return _mm256_srli_epi16(a, 12);
    return _mm256_and_si256(_mm256_srli_epi16(a, 4 * index), _mm256_set1_epi16(15));
  }
  // All bits set in the first n lanes.
  static I Mask(int n) {
    const __m256i count = _mm256_set1_epi32(n);
    return {_mm256_cmpgt_epi32(count, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
            _mm256_cmpgt_epi32(count, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))};
  }
  static __m128i LoadNarrow(const uint16_t* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  static void StoreNarrow(void* p, __m128i a) { _mm_storeu_si128(static_cast<__m128i*>(p), a); }
  static __m256 Bf16(__m128i bits) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  static __m256i RoundBf16(__m256 a) {
    const __m256i bits = _mm256_castps_si256(a);
    const __m256i upper = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    const __m256i half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
    const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded, quiet, nan);
  }
  // Packs the low 16 bits of each 32-bit lane.
  static __m128i Low16(__m256i a) {
    const __m128i half = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1);
    const __m256i order = _mm256_broadcastsi128_si256(half);
    const __m256i packed = _mm256_shuffle_epi8(a, order);
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
  }
};

}  // namespace
}  // namespace baton::cpu
