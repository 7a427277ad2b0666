#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "common/base/status.h"

namespace baton {

enum class MemoryKind { kHost, kCuda };

// Memory of one device; freed on destruction. `data()` may be dereferenced on the host only when
// the kind is kHost.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual MemoryKind kind() const = 0;
  virtual std::byte* data() const = 0;
  virtual size_t size() const = 0;
  // A file descriptor through which another process can map this memory (a memfd, owned by the
  // buffer), or -1 when there is none. GPU memory is shared through Dma::Export instead.
  virtual int shared_fd() const = 0;
};

enum class Sharing { kPrivate, kShared };

// One CPU or GPU with its memory: allocates memory, and copies bytes into and out of it.
// Thread-safe.
class Device {
 public:
  virtual ~Device() = default;
  // The device and, on a CPU, the instruction set in use: "cpu avx512", "cuda:0".
  virtual std::string name() const = 0;
  // Allocates zeroed memory, aligned to 4 KiB. Other processes can map Sharing::kShared memory (KV
  // arenas). Errors: ResourceExhausted, with the requested and the free size; FailedPrecondition
  // when memory cannot be shared here.
  virtual StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes, Sharing sharing) = 0;
  virtual Status CopyIn(const Buffer& to, size_t offset, std::span<const std::byte> from) = 0;
  virtual Status CopyOut(const Buffer& from, size_t offset, std::span<std::byte> to) = 0;
  // Bytes still free for Allocate.
  virtual size_t free_bytes() const = 0;
};

}  // namespace baton
