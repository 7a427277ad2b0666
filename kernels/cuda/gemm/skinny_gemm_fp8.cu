#include "kernels/cuda/gemm/skinny_kernel.cuh"

namespace baton::cuda {

SkinnyKernelPointer Fp8SkinnyKernelFor(const SkinnyPlan& plan, bool pairs) {
  return SkinnyKernelFor<__nv_fp8_e4m3>(plan, pairs);
}

}  // namespace baton::cuda
