#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <utility>

#include "kernels/cuda/device/cuda_status.h"

namespace baton::cuda {

// Page-locked host memory that the device can read and write. It only grows. Not thread-safe.
class PinnedMemory final {
 public:
  PinnedMemory() = default;
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  ~PinnedMemory() { cudaFreeHost(data_); }

  // Makes room for `bytes` bytes. When the memory grows, its content is lost. Errors:
  // ResourceExhausted.
  Status Reserve(size_t bytes) {
    if (bytes <= size_) return OkStatus();
    BATON_CUDA_RETURN_IF_ERROR(cudaFreeHost(std::exchange(data_, nullptr)));
    size_ = 0;
    BATON_CUDA_RETURN_IF_ERROR(cudaMallocHost(&data_, bytes));
    size_ = bytes;
    return OkStatus();
  }
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace baton::cuda
