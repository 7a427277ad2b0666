#include <cuda_fp8.h>

#include "kernels/cuda/gated_gemm_kernel.cuh"

namespace baton::cuda {

GatedKernelPointer QuantizedGatedKernelOf(const GatedPlan& plan) {
  return GatedKernelOf<__nv_fp8_e4m3>(plan);
}

}  // namespace baton::cuda
