#pragma once

#include <cstddef>
#include <vector>

#include "kernels/device.h"

namespace baton {

// Zeroed memory of this process. Other processes cannot map it.
class HostBuffer final : public Buffer {
 public:
  explicit HostBuffer(size_t bytes) : bytes_(bytes) {}
  MemoryKind kind() const override { return MemoryKind::kHost; }
  std::byte* data() const override { return const_cast<std::byte*>(bytes_.data()); }
  size_t size() const override { return bytes_.size(); }
  int shared_fd() const override { return -1; }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace baton
