#pragma once

#include <cstddef>
#include <memory>

#include "kernels/cpu/cpu_device.h"

namespace baton::cpu {

// Memory for packed weights, cut from large buffers so that the system can back it with huge pages
// (a layer's matrices alone are smaller than one). A buffer lives as long as any matrix in it. One
// thread at a time.
class WeightMemory final {
 public:
  explicit WeightMemory(CpuDevice& device) : device_(device) {}

  // Zeroed, aligned to 64 bytes. Errors: ResourceExhausted.
  StatusOr<std::shared_ptr<std::byte>> Allocate(size_t bytes);

 private:
  CpuDevice& device_;
  std::shared_ptr<Buffer> buffer_;
  size_t used_ = 0;
};

}  // namespace baton::cpu
