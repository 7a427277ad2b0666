#include "common/base/shared_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace baton {

StatusOr<std::span<std::byte>> MapSharedMemory(const UniqueFd& memory,
                                               size_t least_bytes,
                                               bool writable) {
  struct stat info {};
  if (::fstat(memory.get(), &info) != 0) {
    return InvalidArgument(
        "descriptor {} is not shared memory: {}", memory.get(), std::strerror(errno));
  }
  const auto bytes = static_cast<size_t>(info.st_size);
  if (bytes < std::max<size_t>(least_bytes, 1)) {
    return InvalidArgument(
        "the shared memory of descriptor {} has {} bytes; at least {} are needed",
        memory.get(),
        bytes,
        std::max<size_t>(least_bytes, 1));
  }
  // Pages take memory when they are first written, so the whole need not be free now.
  const int flags = MAP_SHARED | MAP_NORESERVE;
  void* data =
      ::mmap(nullptr, bytes, PROT_READ | (writable ? PROT_WRITE : 0), flags, memory.get(), 0);
  if (data == MAP_FAILED) {
    return MakeStatus(StatusCode::kResourceExhausted,
                      "cannot map the {} bytes of the shared memory of descriptor {}: {}",
                      bytes,
                      memory.get(),
                      std::strerror(errno));
  }
  return std::span(static_cast<std::byte*>(data), bytes);
}

}  // namespace baton
