#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/status.h"

namespace baton::cuda {

// Memory (DeviceMemory or PinnedMemory) that keeps what it has outgrown until its end, because
// freeing waits for all kernels of the device (QueuePool says whom that would harm). Its size at
// least doubles, so all that it keeps is smaller than what it uses. Not thread-safe.
template <class Memory>
class OutgrownMemory final {
 public:
  // Makes room for `bytes` bytes. When the memory grows, its content is lost and its address
  // changes. Errors: ResourceExhausted.
  Status Reserve(size_t bytes) {
    if (bytes <= size_) return OkStatus();
    const size_t size = std::max(bytes, 2 * size_);
    auto memory = std::make_unique<Memory>();
    BATON_RETURN_IF_ERROR(memory->Reserve(size));
    all_.push_back(std::move(memory));
    size_ = size;
    return OkStatus();
  }
  // After Reserve.
  const Memory& operator*() const { return *all_.back(); }
  const Memory* operator->() const { return all_.back().get(); }

 private:
  std::vector<std::unique_ptr<Memory>> all_;
  size_t size_ = 0;
};

}  // namespace baton::cuda
