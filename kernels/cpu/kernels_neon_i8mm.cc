#include "kernels/cpu/dot_matmul_kernels.h"
#include "kernels/cpu/kernels_build.h"
#include "kernels/cpu/simd_neon_i8mm.h"

namespace baton::cpu {

const KernelTable& NeonI8mmKernels() {
  static constexpr KernelTable kTable = BuildKernels<NeonI8mm, DotMatMulKernels>();
  return kTable;
}

}  // namespace baton::cpu
