#pragma once

#include <memory>
#include <string>
#include <utility>

#include "common/base/unique_fd.h"
#include "kernels/device.h"

namespace baton {

// Host memory. Private buffers are anonymous pages; shared buffers are memfds that other processes
// can map. Immutable, so thread-safe. The pages of a private buffer are allocated on first touch;
// the pages of a shared buffer are allocated in advance by a thread of the buffer.
class CpuDevice final : public Device {
 public:
  explicit CpuDevice(std::string name = "cpu") : name_(std::move(name)) {}

  std::string name() const override { return name_; }
  StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes, Sharing sharing) override;
  // Errors: OutOfRange when the range is not within the buffer.
  Status CopyIn(const Buffer& to, size_t offset, std::span<const std::byte> from) override;
  Status CopyOut(const Buffer& from, size_t offset, std::span<std::byte> to) override;
  // MemAvailable of /proc/meminfo, or the free RAM when that value is missing.
  size_t free_bytes() const override;

 private:
  std::string name_;
};

// Maps the whole memory of a shared buffer of another process. Errors: InvalidArgument when
// `memory` is not a file with a size.
StatusOr<std::unique_ptr<Buffer>> MapShared(UniqueFd memory);

}  // namespace baton
