#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "common/base/status.h"
#include "kernels/cuda/device/device_memory.h"

namespace baton::cuda {

// Scratch memory on the device that ops request for every step. Memory that was returned before
// stays valid, because listed ops and captured graphs may use it; therefore each new allocation
// is at least twice as large as the last. Not thread-safe.
class ScratchMemory final {
 public:
  // Memory of at least `bytes` bytes; the same memory as before while that is large enough. New
  // memory is zeroed. Errors: ResourceExhausted.
  StatusOr<std::byte*> Get(size_t bytes) {
    if (memory_.empty() || memory_.back()->size() < bytes) {
      auto more = std::make_unique<DeviceMemory>();
      const size_t grown = memory_.empty() ? 0 : 2 * memory_.back()->size();
      BATON_RETURN_IF_ERROR(more->Reserve(std::max({bytes, grown, kFirst})));
      memory_.push_back(std::move(more));
    }
    return memory_.back()->at();
  }

 private:
  static constexpr size_t kFirst = size_t{64} << 10;

  std::vector<std::unique_ptr<DeviceMemory>> memory_;
};

}  // namespace baton::cuda
