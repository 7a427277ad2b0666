#include "kernels/cuda/input/step_buffer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/cuda/device/cuda_status.h"

namespace baton::cuda {

StatusOr<std::unique_ptr<StepBuffer>> StepBuffer::Create(size_t capacity, size_t steps) {
  std::unique_ptr<StepBuffer> buffer(new StepBuffer(steps));
  BATON_RETURN_IF_ERROR(buffer->Allocate(capacity));
  return buffer;
}

StepBuffer::~StepBuffer() {
  Free();
}

Status StepBuffer::Allocate(size_t capacity) {
  for (std::byte*& staging : staging_) {
    BATON_CUDA_RETURN_IF_ERROR(cudaMallocHost(reinterpret_cast<void**>(&staging), capacity));
  }
  BATON_CUDA_RETURN_IF_ERROR(cudaMalloc(reinterpret_cast<void**>(&device_), capacity));
  capacity_ = capacity;
  return OkStatus();
}

void StepBuffer::Free() {
  for (std::byte*& staging : staging_) cudaFreeHost(std::exchange(staging, nullptr));
  cudaFree(device_);
  device_ = nullptr;
  capacity_ = 0;
}

// Data that does not fit is only counted; Fits() then makes the caller write it again.
size_t StepBuffer::Append(const void* from, size_t bytes) {
  const size_t at = size_;
  if (bytes > 0 && at + bytes <= capacity_) std::memcpy(staging_[turn_] + at, from, bytes);
  size_ = (at + bytes + kAlignment - 1) / kAlignment * kAlignment;
  return at;
}

StatusOr<bool> StepBuffer::Fits() {
  if (size_ <= capacity_) return true;
  const size_t wanted = std::max(size_, 2 * capacity_);
  BATON_CUDA_RETURN_IF_ERROR(cudaDeviceSynchronize());
  Free();
  BATON_RETURN_IF_ERROR(Allocate(wanted));
  Clear();
  return false;
}

cudaError_t StepBuffer::Upload(cudaStream_t stream) {
  return cudaMemcpyAsync(device_, staging_[turn_], size_, cudaMemcpyHostToDevice, stream);
}

}  // namespace baton::cuda
