#pragma once

#include <memory>
#include <string>

#include "kernels/device.h"

namespace baton {

// Host memory. Private buffers are anonymous pages; shared ones are memfds that other processes can
// map. Stateless, so thread-safe. A private buffer's pages are taken from the system on first
// touch, a shared one's ahead of that, by a thread of the buffer's own.
class CpuDevice final : public Device {
 public:
  std::string name() const override { return "cpu"; }
  StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes, Sharing sharing) override;
  // Errors: OutOfRange when the range does not lie inside the buffer.
  Status CopyIn(const Buffer& to, size_t offset, std::span<const std::byte> from) override;
  Status CopyOut(const Buffer& from, size_t offset, std::span<std::byte> to) override;
  // What the kernel says is available (MemAvailable), or the free RAM where it does not say.
  size_t free_bytes() const override;
};

}  // namespace baton
