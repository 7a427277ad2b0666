#pragma once

// Included by one source file for each instruction set, which first defines XXH_VECTOR if it needs
// to. All of xxhash is then static to that file.
#define XXH_INLINE_ALL
#include <xxhash.h>

#if defined(__AVX__)
#include <immintrin.h>
#endif

namespace baton {
namespace {

// To be called after functions of xxhash, before code that other files compile. xxhash's
// `#pragma GCC optimize` keeps GCC from inserting vzeroupper, without which the SSE instructions
// that follow can be tens of times slower.
inline void LeaveAvx() {
#if defined(__AVX__)
  _mm256_zeroupper();
#endif
}

}  // namespace
}  // namespace baton
