#include "tests/gpu/compiled_for.h"

namespace baton::cuda {
namespace {

__global__ void Describe(CompiledFor* to) {
#ifdef __CUDA_ARCH__
  to->architecture = __CUDA_ARCH__ / 10;
#endif
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  to->has_hopper_features = 1;
#endif
}

}  // namespace

cudaError_t FindCompiledFor(CompiledFor* result) {
  CompiledFor* there = nullptr;
  cudaError_t error = cudaMallocManaged(&there, sizeof(CompiledFor));
  if (error != cudaSuccess) return error;
  *there = {};
  Describe<<<1, 1>>>(there);
  error = cudaDeviceSynchronize();
  if (error == cudaSuccess) *result = *there;
  cudaFree(there);
  return error;
}

}  // namespace baton::cuda
