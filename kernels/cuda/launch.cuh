#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

namespace baton::cuda {

// Launches `kernel` so that it may start while its predecessor on the stream drains (programmatic
// dependent launch). Such a kernel must call WaitForPredecessor() before it touches memory that the
// predecessor writes or reads, in every thread block.
template <class... Parameters, class... Arguments>
cudaError_t LaunchOverlapped(void (*kernel)(Parameters...),
                             dim3 grid,
                             dim3 block,
                             size_t shared_bytes,
                             cudaStream_t stream,
                             Arguments&&... arguments) {
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
}

#ifdef __CUDACC__
// Waits until all kernels before this one on the stream have finished and their writes are seen.
__device__ __forceinline__ void WaitForPredecessor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel on the stream begin to launch, once all thread blocks have called it: before
// waiting, so that what it loads early comes while this kernel still waits.
__device__ __forceinline__ void ReleaseSuccessor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
#endif

}  // namespace baton::cuda
