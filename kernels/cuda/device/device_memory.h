#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>
#include <utility>

#include "kernels/cuda/device/cuda_status.h"

namespace baton::cuda {

// Assigns offsets, multiples of 256 bytes, to the parts of one allocation.
class Layout final {
 public:
  // The offset of a new part of `bytes` bytes.
  constexpr size_t Take(size_t bytes) {
    const size_t at = size_;
    size_ = (at + bytes + 255) / 256 * 256;
    return at;
  }
  constexpr size_t size() const { return size_; }

 private:
  size_t size_ = 0;
};

// Scratch memory on the current device. It only grows. Not thread-safe.
class DeviceMemory final {
 public:
  DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() { cudaFree(data_); }

  // Makes room for `bytes` bytes. When the memory grows, its content is lost and its address
  // changes; the new memory is zeroed. Errors: ResourceExhausted.
  Status Reserve(size_t bytes) {
    if (bytes <= size_) return OkStatus();
    BATON_CUDA_RETURN_IF_ERROR(cudaFree(std::exchange(data_, nullptr)));
    size_ = 0;
    const cudaError_t error = cudaMalloc(&data_, bytes);
    if (error != cudaSuccess) {
      cudaGetLastError();  // clears the error: a failed allocation is not a failed kernel
      return ToStatus(error, "allocating scratch memory");
    }
    BATON_CUDA_RETURN_IF_ERROR(cudaMemset(data_, 0, bytes));
    // The fill runs on the default stream, for which other streams do not wait.
    BATON_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(nullptr));
    size_ = bytes;
    return OkStatus();
  }

  // Copies `bytes`, which have room, to the start of the memory, and waits until they are there.
  Status Write(std::span<const std::byte> bytes) {
    BATON_CUDA_RETURN_IF_ERROR(
        cudaMemcpy(data_, bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
    // cudaMemcpy may return before, and other streams do not wait for the default stream.
    return ToStatus(cudaStreamSynchronize(nullptr), "writing to the device");
  }

  template <class T = std::byte>
  T* at(size_t offset = 0) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(data_) + offset);
  }
  size_t size() const { return size_; }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace baton::cuda
