#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/kernel_table.h"

namespace baton::cpu {
namespace {

// The vectors of simd_portable.h with AVX-512 F, BW, DQ, VL and VNNI.
struct Avx512 {
  static constexpr int kTileVectors = 24;
  static constexpr int kPackedTileRows = 8;
  static constexpr int kPackedRows = kTileRows;
  static constexpr int kFloatTileRows = 8;

  using F = __m512;
  using I = __m512i;
  typedef int32_t D __attribute__((vector_size(64)));

  static __mmask16 Lanes(int n) { return static_cast<__mmask16>((1U << n) - 1); }

  static F Set(float x) { return _mm512_set1_ps(x); }
  static F Load(const float* p) { return _mm512_loadu_ps(p); }
  static F LoadPart(const float* p, int n) { return _mm512_maskz_loadu_ps(Lanes(n), p); }
  static void Store(float* p, F a) { _mm512_storeu_ps(p, a); }
  static void StorePart(float* p, F a, int n) { _mm512_mask_storeu_ps(p, Lanes(n), a); }
  static F Add(F a, F b) { return _mm512_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm512_div_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F Max(F a, F b) { return _mm512_max_ps(a, b); }
  static F Min(F a, F b) { return _mm512_min_ps(a, b); }
  static F KeepFrom(F limit, F x, F a) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLT_UQ), a);
  }
  static F Select(int first, int last, F a, F b) {
    const int from = first < 0 ? 0 : first > 16 ? 16 : first;
    const int to = last < 0 ? 0 : last > 16 ? 16 : last;
    const auto mask = static_cast<__mmask16>(Lanes(to) & ~Lanes(from));
    return _mm512_mask_blend_ps(mask, b, a);
  }
  static float Sum(F a) {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  static float MaxLane(F a) { return _mm512_reduce_max_ps(a); }

  static F LoadHalf(const uint16_t* p) { return _mm512_cvtph_ps(LoadNarrow(p)); }
  static F LoadBf16(const uint16_t* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(LoadNarrow(p)), 16));
  }
  static F LoadFp8(const std::byte* p) {
    const __m256i wide = _mm256_slli_epi16(_mm256_cvtepi8_epi16(LoadSixteen(p)), 7);
    return _mm512_cvtph_ps(_mm256_and_si256(wide, _mm256_set1_epi16(static_cast<int16_t>(0xbf80))));
  }
  static void StoreHalf(uint16_t* p, F a) {
    StoreNarrow(p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static void StoreBf16(uint16_t* p, F a) {
    const I bits = _mm512_castps_si512(a);
    const I odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    I rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    rounded = _mm512_srli_epi32(rounded, 16);
    const I quiet = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
    const __mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    StoreNarrow(p, _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(nan, rounded, quiet)));
  }

  static I SetInt(int32_t x) { return _mm512_set1_epi32(x); }
  static I LoadInt(const void* p) { return _mm512_loadu_si512(p); }
  static I LoadBytes(const std::byte* p) { return _mm512_cvtepu8_epi32(LoadSixteen(p)); }
  static I LoadSignedBytes(const std::byte* p) { return _mm512_cvtepi8_epi32(LoadSixteen(p)); }
  static I Bits(F a) { return _mm512_castps_si512(a); }
  static F FromBits(I a) { return _mm512_castsi512_ps(a); }
  static I AddInt(I a, I b) { return _mm512_add_epi32(a, b); }
  static I SubInt(I a, I b) { return _mm512_sub_epi32(a, b); }
  static I MaxInt(I a, I b) { return _mm512_max_epi32(a, b); }
  static I And(I a, I b) { return _mm512_and_si512(a, b); }
  static I OrMasked(I a, I b, I mask) {
    constexpr int kOrOfAnd = 0xf8;  // a | (b & mask)
    return _mm512_ternarylogic_epi32(a, b, mask, kOrOfAnd);
  }
  static F FromInt(I a) { return _mm512_cvtepi32_ps(a); }
  template <int kBits>
  static I ShiftLeft(I a) {
    return _mm512_slli_epi32(a, kBits);
  }
  template <int kBits>
  static I ShiftRight(I a) {
    return _mm512_srli_epi32(a, kBits);
  }
  static I ShiftRightBy(I a, int bits) { return _mm512_srl_epi32(a, _mm_cvtsi32_si128(bits)); }
  template <int kBits>
  static I ShiftRight16(I a) {
    return _mm512_srli_epi16(a, kBits);
  }
  static D SetDot(int32_t x) { return reinterpret_cast<D>(_mm512_set1_epi32(x)); }
  static D AddDot(D a, D b) { return a + b; }
  static F ToFloat(D a) { return _mm512_cvtepi32_ps(reinterpret_cast<__m512i>(a)); }
  static int32_t SumInt(I a) { return _mm512_reduce_add_epi32(a); }
  static int32_t MaxLaneInt(I a) { return _mm512_reduce_max_epi32(a); }
  static void StoreInt16(int16_t* p, I a) { StoreNarrow(p, _mm512_cvtepi32_epi16(a)); }
  static D DotPairs(D acc, I a, I b) {
    return reinterpret_cast<D>(_mm512_dpwssd_epi32(reinterpret_cast<__m512i>(acc), a, b));
  }
  // The same with the two 16-bit integers at `pair` in every lane. Compilers would load them by an
  // instruction of its own.
  [[gnu::always_inline]] static D DotPair(D acc, I a, const int16_t* pair) {
    const auto& both = *reinterpret_cast<const int32_t(*)[1]>(pair);
    asm("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(a), "m"(both));
    return acc;
  }
  [[gnu::always_inline]] static I Nibbles(I a, int index) {
    if (index == 3) return _mm512_srli_epi16(a, 12);
    return _mm512_and_si512(_mm512_srli_epi16(a, static_cast<unsigned>(4 * index)),
                            _mm512_set1_epi16(15));
  }
  static void Pin(D& a) { asm volatile("" : "+v"(a)); }
  template <class T>
  static void Keep(T& memory) {
    asm volatile("" : "+m"(memory));
  }
  static I EvenBytes(I a) { return _mm512_srai_epi16(_mm512_slli_epi16(a, 8), 8); }
  static I OddBytes(I a) { return _mm512_srai_epi16(a, 8); }
  static I TableBytes(I a, const int8_t (&table)[16]) {
    const __m128i numbers = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(numbers), a);
  }

 private:
  static __m128i LoadSixteen(const std::byte* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  static __m256i LoadNarrow(const uint16_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static void StoreNarrow(void* p, __m256i a) { _mm256_storeu_si256(static_cast<__m256i*>(p), a); }
};

}  // namespace
}  // namespace baton::cpu
