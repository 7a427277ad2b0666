#pragma once

#include "kernels/cpu/simd_avx2.h"

namespace baton::cpu {
namespace {

// The vectors of simd_avx2.h, whose dot products of integers are one instruction of AVX-VNNI.
struct AvxVnni : Avx2 {
  static D DotPairs(D acc, I a, I b) {
    return {DotPairs(acc.low, a.low, b.low), DotPairs(acc.high, a.high, b.high)};
  }

 private:
  static Lanes8 DotPairs(Lanes8 acc, __m256i a, __m256i b) {
    return reinterpret_cast<Lanes8>(_mm256_dpwssd_avx_epi32(reinterpret_cast<__m256i>(acc), a, b));
  }
};

}  // namespace
}  // namespace baton::cpu
