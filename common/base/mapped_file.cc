#include "common/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/unique_fd.h"

namespace baton {
namespace {

Status FileError(const std::string& path, int error) {
  const StatusCode code = error == ENOENT   ? StatusCode::kNotFound
                          : error == EACCES ? StatusCode::kPermissionDenied
                                            : StatusCode::kUnavailable;
  return MakeStatus(code, "cannot read {}: {}", path, std::strerror(error));
}

}  // namespace

StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return FileError(path, errno);
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0) return FileError(path, errno);
  if (!S_ISREG(info.st_mode)) return InvalidArgument("{} is not a regular file", path);
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return MappedFile(path, nullptr, 0);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return FileError(path, errno);
  return MappedFile(path, static_cast<const std::byte*>(data), size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    Unmap();
    path_ = std::move(other.path_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

MappedFile::~MappedFile() {
  Unmap();
}

void MappedFile::DropPages(std::span<const std::byte> part) const {
  if (data_ == nullptr || part.data() < data_ || part.data() >= data_ + size_) return;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const auto offset = static_cast<size_t>(part.data() - data_);
  const size_t begin = (offset + page - 1) / page * page;
  const size_t end = (offset + part.size()) / page * page;
  // The result is not checked: when the system refuses, the pages merely stay in memory.
  if (begin < end) ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

void MappedFile::Unmap() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

StatusOr<std::string> ReadFile(const std::string& path, size_t limit) {
  BATON_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  if (file.bytes().size() > limit) {
    return MakeStatus(StatusCode::kResourceExhausted,
                      "{} has {} bytes; at most {} are read",
                      path,
                      file.bytes().size(),
                      limit);
  }
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

}  // namespace baton
