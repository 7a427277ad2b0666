#pragma once

#include <cuda.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "common/base/status.h"

namespace baton::cuda {

// Device memory that grows at its end: its address never changes, so that captured graphs may use
// it. It has addresses for all memory of the device, and takes memory in pieces of 2 MiB. Not
// thread-safe.
class GrowingMemory final {
 public:
  // For the current device. Errors: FailedPrecondition when the driver cannot map memory.
  static StatusOr<std::unique_ptr<GrowingMemory>> Create();
  ~GrowingMemory();
  GrowingMemory(const GrowingMemory&) = delete;
  GrowingMemory& operator=(const GrowingMemory&) = delete;

  // Makes the memory at least `bytes` bytes long. New memory is zeroed. Errors: ResourceExhausted.
  Status Grow(size_t bytes);

  std::byte* data() const {
    return reinterpret_cast<std::byte*>(address_);  // NOLINT(performance-no-int-to-ptr): it is one
  }
  size_t size() const { return size_; }

 private:
  GrowingMemory() = default;

  CUdevice device_ = 0;
  CUdeviceptr address_ = 0;
  size_t reserved_ = 0;  // bytes of addresses
  size_t piece_ = 0;     // sizes are multiples of this
  size_t size_ = 0;
  std::vector<CUmemGenericAllocationHandle> handles_;
};

}  // namespace baton::cuda
