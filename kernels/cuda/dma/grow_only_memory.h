#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/status.h"

namespace baton::cuda {

// A DeviceMemory or PinnedMemory that can grow. When it grows, it keeps the smaller allocations
// until it is destroyed, because freeing memory earlier can deadlock (QueuePool). The size at least
// doubles, so the kept allocations together are smaller than the current one. Not thread-safe.
template <class Memory>
class GrowOnlyMemory final {
 public:
  // Makes room for `bytes` bytes. If the memory grows, its content is lost and its address changes.
  // Errors: ResourceExhausted.
  Status Reserve(size_t bytes) {
    if (bytes <= size_) return OkStatus();
    const size_t size = std::max(bytes, 2 * size_);
    auto memory = std::make_unique<Memory>();
    BATON_RETURN_IF_ERROR(memory->Reserve(size));
    all_.push_back(std::move(memory));
    size_ = size;
    return OkStatus();
  }
  // The current allocation. Called after Reserve.
  const Memory& operator*() const { return *all_.back(); }
  const Memory* operator->() const { return all_.back().get(); }

 private:
  std::vector<std::unique_ptr<Memory>> all_;
  size_t size_ = 0;
};

}  // namespace baton::cuda
