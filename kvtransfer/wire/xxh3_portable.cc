#include <cstring>

#include "kvtransfer/wire/xxh3_kernel_build.h"

namespace baton {

const Xxh3Kernel& Xxh3Portable() {
  static constexpr Xxh3Kernel kKernel =
      MakeKernel([](void* to, const void* from, size_t size) { std::memcpy(to, from, size); },
                 [](void* to, const void* from, size_t size) -> uint64_t {
                   std::memcpy(to, from, size);
                   return XXH3_64bits(to, size);
                 });
  return kKernel;
}

}  // namespace baton
