#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "common/base/status.h"

namespace baton {

// A whole file mapped read-only. Movable; unmapped on destruction. Immutable, so thread-safe.
class MappedFile final {
 public:
  // An empty file maps to an empty span. Errors name the path and the system's reason: NotFound,
  // PermissionDenied, InvalidArgument when the path is not a regular file, else Unavailable.
  static StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Drops the pages that lie wholly in `part` from this process's memory; the next access reads
  // them from the file again. Does nothing when `part` is not in this mapping.
  void DropPages(std::span<const std::byte> part) const;
  const std::string& path() const { return path_; }

 private:
  MappedFile(std::string path, const std::byte* data, size_t size)
      : path_(std::move(path)), data_(data), size_(size) {}
  void Unmap();

  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// The whole content of a small file (configuration, JSON). Errors as MappedFile::Open, and
// ResourceExhausted over `limit` bytes.
StatusOr<std::string> ReadFile(const std::string& path, size_t limit = size_t{64} << 20);

}  // namespace baton
