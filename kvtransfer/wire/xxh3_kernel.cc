#include "kvtransfer/wire/xxh3_kernel.h"

namespace baton {

const Xxh3Kernel& BestXxh3() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return Xxh3Avx2();
#endif
  return Xxh3Portable();
}

}  // namespace baton
