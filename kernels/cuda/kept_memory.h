#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "common/base/status.h"
#include "kernels/cuda/cuda_status.h"

namespace baton::cuda {

// Device memory for recorded launches: it may be asked to grow, and what was given before stays
// valid, since a graph may still use it. Sizes double, so that no more is kept than is used. Not
// thread-safe.
class KeptMemory final {
 public:
  KeptMemory() = default;
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;
  ~KeptMemory() {
    for (void* buffer : buffers_) cudaFree(buffer);
  }

  // Memory of `bytes` or more, zeroed when it is new. Errors: ResourceExhausted.
  StatusOr<std::byte*> Get(size_t bytes) {
    if (buffers_.empty() || bytes > size_) {
      const size_t wanted = std::max({bytes, 2 * size_, kFirst});
      void* buffer = nullptr;
      const cudaError_t error = cudaMalloc(&buffer, wanted);
      if (error != cudaSuccess) {
        cudaGetLastError();  // a failed allocation is no failed kernel
        return ToStatus(error, "allocating scratch memory");
      }
      buffers_.push_back(buffer);
      size_ = wanted;
      BATON_CUDA_RETURN_IF_ERROR(cudaMemset(buffer, 0, wanted));
      // The fill runs on the default stream, which other streams need not wait for.
      BATON_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(nullptr));
    }
    return static_cast<std::byte*>(buffers_.back());
  }

 private:
  static constexpr size_t kFirst = size_t{64} << 10;

  std::vector<void*> buffers_;
  size_t size_ = 0;  // of the last
};

}  // namespace baton::cuda
