#define XXH_VECTOR 2  // XXH_AVX2
#include "kvtransfer/wire/xxh3_kernel_build.h"

namespace baton {

const Xxh3Kernel& Xxh3Avx2() {
  return kKernel;
}

}  // namespace baton
