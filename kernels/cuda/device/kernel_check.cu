#include "kernels/cuda/device/kernel_check.h"

namespace baton::cuda {
namespace {

__global__ void NoKernel() {}

}  // namespace

cudaError_t CheckKernels() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, NoKernel);
}

}  // namespace baton::cuda
