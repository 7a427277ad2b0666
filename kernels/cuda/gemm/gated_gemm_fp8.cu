#include <cuda_fp8.h>

#include "kernels/cuda/gemm/gated_kernel.cuh"

namespace baton::cuda {

GatedKernelPointer Fp8GatedKernelFor(const GatedPlan& plan) {
  return GatedKernelFor<__nv_fp8_e4m3>(plan);
}

}  // namespace baton::cuda
