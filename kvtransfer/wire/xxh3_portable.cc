#include "kvtransfer/wire/xxh3_kernel_build.h"

namespace baton {

const Xxh3Kernel& Xxh3Portable() {
  return kKernel;
}

}  // namespace baton
