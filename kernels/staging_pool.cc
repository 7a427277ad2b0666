#include "kernels/staging_pool.h"

#include <algorithm>
#include <utility>

namespace baton {

StatusOr<std::unique_ptr<Buffer>> StagingPool::Take(size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    const auto fits = std::find_if(
        free_.begin(), free_.end(), [&](const auto& buffer) { return buffer->size() >= bytes; });
    if (fits != free_.end()) {
      std::unique_ptr<Buffer> buffer = std::move(*fits);
      free_.erase(fits);
      return buffer;
    }
  }
  return device_.Allocate(bytes, Sharing::kPrivate);
}

void StagingPool::GiveBack(std::unique_ptr<Buffer> buffer) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(buffer));
}

}  // namespace baton
