#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <span>

#include "common/base/status.h"

namespace baton::cuda {

// The data of one step, written on the host and brought to the device with one copy. What has a
// size that depends on the padded step alone is written first, so that a recorded step finds it at
// the same addresses each time; lists of varying length follow, and all but the first of them are
// found through offsets from base(). Not thread-safe.
class StepBuffer final {
 public:
  static constexpr size_t kAlignment = 16;

  // Room for `capacity` bytes at first. Errors: ResourceExhausted.
  static StatusOr<std::unique_ptr<StepBuffer>> Create(size_t capacity);
  ~StepBuffer();
  StepBuffer(const StepBuffer&) = delete;
  StepBuffer& operator=(const StepBuffer&) = delete;

  // Forgets what was written. The copy before the last must be over.
  void Clear() {
    size_ = 0;
    turn_ = 1 - turn_;
  }

  // Appends `values`; gives the device address at which they lie once uploaded.
  template <class T>
  const T* Write(std::span<const T> values) {
    return reinterpret_cast<const T*>(device_ + Append(values.data(), values.size_bytes()));
  }
  // As Write, but gives the offset from base().
  template <class T>
  size_t WriteAt(std::span<const T> values) {
    return Append(values.data(), values.size_bytes());
  }
  const std::byte* base() const { return device_; }

  // True when all that was written fits. Else makes room, when the device is done with all it was
  // given, and gives false: all addresses changed, and everything must be written again. Errors:
  // ResourceExhausted.
  StatusOr<bool> Fits();
  // Issues the copy of all that was written.
  cudaError_t Upload(cudaStream_t stream);

 private:
  StepBuffer() = default;
  size_t Append(const void* from, size_t bytes);
  Status Allocate(size_t capacity);
  void Free();

  std::byte* staging_[2] = {};  // pinned; in turn, since a copy waits for the steps before it
  size_t turn_ = 0;
  std::byte* device_ = nullptr;
  size_t capacity_ = 0;
  size_t size_ = 0;
};

}  // namespace baton::cuda
