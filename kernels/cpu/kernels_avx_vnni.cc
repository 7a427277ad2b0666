#include "kernels/cpu/kernels_build.h"
#include "kernels/cpu/simd_avx_vnni.h"

namespace baton::cpu {

const KernelTable& AvxVnniKernels() {
  static constexpr KernelTable kTable = BuildKernels<AvxVnni>();
  return kTable;
}

}  // namespace baton::cpu
