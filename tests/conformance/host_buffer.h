#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>

#include "common/base/check.h"
#include "common/base/unique_fd.h"
#include "kernels/device.h"

namespace baton {

// Host memory in a memfd, for transports under test.
class HostBuffer final : public Buffer {
 public:
  explicit HostBuffer(size_t bytes) : size_(bytes) {
    fd_.Reset(::memfd_create("baton-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    BATON_CHECK(::ftruncate(fd_.get(), static_cast<off_t>(bytes)) == 0, "no memory for a test");
    void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
    BATON_CHECK(data != MAP_FAILED, "no memory for a test");
    data_ = static_cast<std::byte*>(data);
  }
  ~HostBuffer() override { ::munmap(data_, size_); }

  MemoryKind kind() const override { return MemoryKind::kHost; }
  std::byte* data() const override { return data_; }
  size_t size() const override { return size_; }
  int shared_fd() const override { return fd_.get(); }

 private:
  UniqueFd fd_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace baton
