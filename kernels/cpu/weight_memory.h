#pragma once

#include <cstddef>
#include <memory>

#include "kernels/cpu/cpu_device.h"

namespace baton::cpu {

// Memory for packed weights. Small matrices share large buffers, so that the system can use huge
// pages even when a matrix is smaller than a huge page. A buffer lives as long as any matrix in it.
// One thread at a time.
class WeightMemory final {
 public:
  explicit WeightMemory(CpuDevice& device) : device_(device) {}

  // Returns zeroed memory, aligned to 64 bytes. Errors: ResourceExhausted.
  StatusOr<std::shared_ptr<std::byte>> Allocate(size_t bytes);

 private:
  CpuDevice& device_;
  std::shared_ptr<Buffer> buffer_;
  size_t used_ = 0;
};

}  // namespace baton::cpu
