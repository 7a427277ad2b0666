#include "kernels/cpu/kernels_build.h"
#include "kernels/cpu/simd_neon.h"

namespace baton::cpu {

const KernelTable& NeonKernels() {
  static constexpr KernelTable kTable = BuildKernels<Neon>();
  return kTable;
}

}  // namespace baton::cpu
