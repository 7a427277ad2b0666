#include "common/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "common/base/unique_fd.h"

namespace baton {
namespace {

constexpr size_t kLeastRead = 4096;

Status FileError(const std::string& path, int error) {
  const StatusCode code = error == ENOENT   ? StatusCode::kNotFound
                          : error == EACCES ? StatusCode::kPermissionDenied
                                            : StatusCode::kUnavailable;
  return MakeStatus(code, "cannot read {}: {}", path, std::strerror(error));
}

std::string_view KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a named pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

Status CheckRegular(const std::string& path, const struct stat& info) {
  if (S_ISREG(info.st_mode)) return OkStatus();
  return InvalidArgument("{} is not a regular file, but {}", path, KindOf(info.st_mode));
}

struct RegularFile {
  UniqueFd fd;
  size_t size = 0;
};

// Opens a file only after a look at its kind, because opening a device may have effects. When a
// named pipe takes the place of the file meanwhile, O_NONBLOCK keeps the call from waiting for a
// writer.
StatusOr<RegularFile> OpenRegular(const std::string& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) return FileError(path, errno);
  BATON_RETURN_IF_ERROR(CheckRegular(path, info));
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0) return FileError(path, errno);
  BATON_RETURN_IF_ERROR(CheckRegular(path, info));
  return RegularFile{std::move(fd), static_cast<size_t>(info.st_size)};
}

}  // namespace

StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const RegularFile file, OpenRegular(path));
  const size_t size = file.size;
  if (size == 0) return MappedFile(path, nullptr, 0);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd.get(), 0);
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
  BATON_ASSIGN_OR_RETURN(const RegularFile file, OpenRegular(path));
  std::string text;
  // Reads one byte more than the size, which finds the end of the file. The files of /proc have the
  // size 0, whatever they contain.
  for (size_t want = std::max(file.size, kLeastRead) + 1; text.size() <= limit; want = kLeastRead) {
    const size_t held = text.size();
    text.resize(held + std::min(want, limit + 1 - held));
    const ssize_t got = ::read(file.fd.get(), text.data() + held, text.size() - held);
    if (got < 0 && errno != EINTR) return FileError(path, errno);
    text.resize(held + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) return text;
  }
  return MakeStatus(StatusCode::kResourceExhausted,
                    "{} has {} bytes; at most {} are read",
                    path,
                    std::max(file.size, text.size()),
                    limit);
}

}  // namespace baton
