#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

#include "kernels/cuda/primitives/loaded_code.h"

namespace baton::cuda {

// The shared memory that a thread block can have on every supported GPU: sm_86, sm_89 and sm_120
// have the least. Kernels that need more are not portable (KernelFamily).
inline constexpr size_t kPortableSharedBytes = size_t{99} << 10;

// The configuration of a launch that may start while its predecessor on the stream drains
// (where OverlapsLaunches), in clusters of `cluster` thread blocks. In every thread block, such a
// kernel must call WaitForPredecessor() before it accesses memory that earlier kernels on the
// stream write, and before it writes memory that they read.
class OverlappedLaunch final {
 public:
  OverlappedLaunch(
      dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream, int cluster = 1) {
    if (OverlapsLaunches()) {
      cudaLaunchAttribute& attribute = attributes_[config_.numAttrs++];
      attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attribute.val.programmaticStreamSerializationAllowed = 1;
    }
    if (cluster > 1) {
      cudaLaunchAttribute& attribute = attributes_[config_.numAttrs++];
      attribute.id = cudaLaunchAttributeClusterDimension;
      attribute.val.clusterDim.x = static_cast<unsigned>(cluster);
      attribute.val.clusterDim.y = 1;
      attribute.val.clusterDim.z = 1;
    }
    config_.gridDim = grid;
    config_.blockDim = block;
    config_.dynamicSmemBytes = shared_bytes;
    config_.stream = stream;
    config_.attrs = attributes_;
  }
  OverlappedLaunch(const OverlappedLaunch&) = delete;
  OverlappedLaunch& operator=(const OverlappedLaunch&) = delete;

  const cudaLaunchConfig_t* config() const { return &config_; }

 private:
  cudaLaunchAttribute attributes_[2];
  cudaLaunchConfig_t config_ = {};
};

// Launches `kernel` with an OverlappedLaunch without clusters.
template <class... Parameters, class... Arguments>
cudaError_t LaunchOverlapped(void (*kernel)(Parameters...),
                             dim3 grid,
                             dim3 block,
                             size_t shared_bytes,
                             cudaStream_t stream,
                             Arguments&&... arguments) {
  const OverlappedLaunch launch(grid, block, shared_bytes, stream);
  return cudaLaunchKernelEx(launch.config(), kernel, std::forward<Arguments>(arguments)...);
}

#ifdef __CUDACC__
// Waits until all kernels before this one on the stream have finished and their writes are visible.
__device__ __forceinline__ void WaitForPredecessor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Allows the next kernel on the stream to launch once all thread blocks of this kernel have called
// it. Call it before WaitForPredecessor(): the next kernel's early loads then run while this
// kernel still waits.
__device__ __forceinline__ void ReleaseSuccessor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
#endif

}  // namespace baton::cuda
