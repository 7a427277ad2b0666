#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace baton {

#if defined(__x86_64__)
// Whether the upper halves of the AVX registers are in use, in which state SSE instructions are
// slow (XINUSE of the Intel manual, volume 1, 13.6). Call it only where TellsAvxState() is true.
inline bool AvxInUse() {
  uint32_t low = 0;
  uint32_t high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
  return (low & 4) != 0;
}

inline bool TellsAvxState() {
  uint32_t eax = 0;
  uint32_t ebx = 0;
  uint32_t ecx = 0;
  uint32_t edx = 0;
  constexpr uint32_t kXgetbvOne = 4;
  if (!__builtin_cpu_supports("avx2") || __get_cpuid_count(13, 1, &eax, &ebx, &ecx, &edx) == 0 ||
      (eax & kXgetbvOne) == 0) {
    return false;
  }
  asm volatile("vpcmpeqd %%ymm0, %%ymm0, %%ymm0" ::: "xmm0");
  const bool used = AvxInUse();
  asm volatile("vzeroupper" ::: "xmm0");
  return used && !AvxInUse();
}
#else
inline bool AvxInUse() {
  return false;
}
inline bool TellsAvxState() {
  return false;
}
#endif

}  // namespace baton
