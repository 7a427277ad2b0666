#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "common/base/status.h"
#include "kernels/device.h"

namespace baton {

// Private memory of one device that is used again and freed only at the end. On a GPU, freeing
// waits for all running kernels. Thread-safe.
class StagingPool final {
 public:
  // `device` must outlive this object.
  explicit StagingPool(Device& device) : device_(device) {}

  // A buffer of at least `bytes` bytes with any content. Errors: those of Device::Allocate.
  StatusOr<std::unique_ptr<Buffer>> Take(size_t bytes);
  // Keeps a buffer of Take, which nothing uses any more, for a later Take.
  void GiveBack(std::unique_ptr<Buffer> buffer);

 private:
  Device& device_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Buffer>> free_;
};

}  // namespace baton
