#include "kernels/cpu/kernels_build.h"
#include "kernels/cpu/simd_avx512.h"

namespace baton::cpu {

const KernelTable& Avx512Kernels() {
  static constexpr KernelTable kTable = BuildKernels<Avx512>();
  return kTable;
}

}  // namespace baton::cpu
