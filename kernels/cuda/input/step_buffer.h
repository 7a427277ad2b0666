#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "common/base/status.h"

namespace baton::cuda {

// Data of one step, written on the host and copied to the device with one copy. The buffer of
// fixed-size data has only arrays whose sizes depend on the padded step alone, so that they are at
// the same addresses in every recorded step of that size. The buffer of lists has lists of varying
// length: the first one is at base(), the others are found through offsets from base(). Not
// thread-safe.
class StepBuffer final {
 public:
  static constexpr size_t kAlignment = 16;

  // A buffer with an initial capacity of `capacity` bytes, for `steps` steps that are under way at
  // most. Errors: ResourceExhausted.
  static StatusOr<std::unique_ptr<StepBuffer>> Create(size_t capacity, size_t steps = 2);
  ~StepBuffer();
  StepBuffer(const StepBuffer&) = delete;
  StepBuffer& operator=(const StepBuffer&) = delete;

  // Discards the written data. Of the last copies, one less than `steps` may be unfinished.
  void Clear() {
    size_ = 0;
    turn_ = (turn_ + 1) % staging_.size();
  }

  // Appends `values`. Returns the device address that they have after Upload.
  template <class T>
  const T* Write(std::span<const T> values) {
    return reinterpret_cast<const T*>(device_ + Append(values.data(), values.size_bytes()));
  }
  // As Write, but returns the offset from base().
  template <class T>
  size_t WriteAt(std::span<const T> values) {
    return Append(values.data(), values.size_bytes());
  }
  const std::byte* base() const { return device_; }

  // Returns true when all written data fits. Otherwise waits until the device is idle, allocates a
  // larger buffer and returns false: all addresses have changed, and the caller must write all data
  // again. Errors: ResourceExhausted.
  StatusOr<bool> Fits();
  // Issues the copy of all written data.
  cudaError_t Upload(cudaStream_t stream);

 private:
  explicit StepBuffer(size_t steps) : staging_(steps) {}
  size_t Append(const void* from, size_t bytes);
  Status Allocate(size_t capacity);
  void Free();

  std::vector<std::byte*> staging_;  // pinned; used in turn, since a copy waits for earlier steps
  size_t turn_ = 0;
  std::byte* device_ = nullptr;
  size_t capacity_ = 0;
  size_t size_ = 0;
};

}  // namespace baton::cuda
