#include "kernels/cpu/dot_matmul_kernels.h"
#include "kernels/cpu/kernels_build.h"
#include "kernels/cpu/simd_neon_dot.h"

namespace baton::cpu {

const KernelTable& NeonDotProdKernels() {
  static constexpr KernelTable kTable = BuildKernels<NeonDotProd, DotMatMulKernels>();
  return kTable;
}

}  // namespace baton::cpu
