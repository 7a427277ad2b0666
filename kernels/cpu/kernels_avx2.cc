#include "kernels/cpu/kernels_build.h"
#include "kernels/cpu/simd_avx2.h"

namespace baton::cpu {

const KernelTable& Avx2Kernels() {
  static constexpr KernelTable kTable = BuildKernels<Avx2>();
  return kTable;
}

}  // namespace baton::cpu
