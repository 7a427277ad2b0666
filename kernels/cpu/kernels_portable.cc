#include "kernels/cpu/kernels_build.h"
#include "kernels/cpu/simd_portable.h"

namespace baton::cpu {

const KernelTable& PortableKernels() {
  static constexpr KernelTable kTable = BuildKernels<Portable>();
  return kTable;
}

}  // namespace baton::cpu
