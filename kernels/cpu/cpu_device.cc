#include "kernels/cpu/cpu_device.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <stop_token>
#include <string_view>
#include <thread>
#include <utility>

#include "common/base/shared_memory.h"
#include "common/base/thread.h"
#include "common/base/unique_fd.h"

namespace baton {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
// Small, because the kernel holds a lock for each step and other threads wait for this lock.
constexpr size_t kPopulateStep = size_t{256} << 10;
constexpr int kPopulateNice = 10;

// Allocates pages for untouched memory. Otherwise the first write to each page waits for its
// allocation, which takes several times as long as a copy of a KV block. On Linux before 5.14 this
// has no effect, and the first writes are slower.
void Populate(const std::stop_token& stop, std::byte* data, size_t size) {
  (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kPopulateNice);
  for (size_t done = 0; done < size && !stop.stop_requested(); done += kPopulateStep) {
    const size_t step = std::min(kPopulateStep, size - done);
    if (::madvise(data + done, step, MADV_POPULATE_WRITE) != 0) return;
  }
}

// Who allocates the pages of a shared buffer in advance: this process, or the one that created it.
enum class Pages { kOwn, kOthers };

class CpuBuffer final : public Buffer {
 public:
  CpuBuffer(std::byte* data, size_t size, UniqueFd fd, Pages pages = Pages::kOwn)
      : data_(data), size_(size), fd_(std::move(fd)) {
    // Only shared buffers: a KV arena uses new blocks one after the other until all were used.
    if (!fd_.valid() || pages == Pages::kOthers) return;
    populate_ = StartThread(
        "populate", [data, size](const std::stop_token& stop) { Populate(stop, data, size); });
  }
  CpuBuffer(const CpuBuffer&) = delete;
  CpuBuffer& operator=(const CpuBuffer&) = delete;
  ~CpuBuffer() override {
    populate_ = {};
    if (size_ > 0) ::munmap(data_, size_);
  }

  MemoryKind kind() const override { return MemoryKind::kHost; }
  std::byte* data() const override { return data_; }
  size_t size() const override { return size_; }
  int shared_fd() const override { return fd_.get(); }

 private:
  std::byte* data_;
  size_t size_;
  UniqueFd fd_;
  std::jthread populate_;
};

size_t RoundToPages(size_t bytes) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

Status CheckRange(const Buffer& buffer, size_t offset, size_t count) {
  if (offset <= buffer.size() && count <= buffer.size() - offset) return OkStatus();
  return MakeStatus(StatusCode::kOutOfRange,
                    "bytes {} + {} are outside a buffer of {} bytes",
                    offset,
                    count,
                    buffer.size());
}

}  // namespace

StatusOr<std::unique_ptr<Buffer>> CpuDevice::Allocate(size_t bytes, Sharing sharing) {
  const size_t free = free_bytes();
  const auto exhausted = [&](std::string_view why) {
    return MakeStatus(StatusCode::kResourceExhausted,
                      "cannot allocate {} bytes of host memory ({}); {} bytes are free",
                      bytes,
                      why,
                      free);
  };
  const auto failed = [&](std::string_view call) {
    return exhausted(fmt::format("{}: {}", call, std::strerror(errno)));
  };
  if (bytes == 0) return std::make_unique<CpuBuffer>(nullptr, 0, UniqueFd());
  // Without this check the system would overcommit memory, and kill the process when it writes
  // there.
  if (bytes > free) return exhausted("more than is free");
  UniqueFd fd;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  if (sharing == Sharing::kShared) {
    fd.Reset(::memfd_create("baton", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd.valid()) return failed("memfd_create");
    if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return failed("ftruncate");
    flags = MAP_SHARED | MAP_NORESERVE;
  }
  // Large private buffers begin at a huge page boundary; the memory before it is unmapped.
  const size_t spare = bytes >= kHugePage && !fd.valid() ? kHugePage : 0;
  void* mapped = ::mmap(nullptr, bytes + spare, PROT_READ | PROT_WRITE, flags, fd.get(), 0);
  if (mapped == MAP_FAILED) return failed("mmap");
  auto* data = static_cast<std::byte*>(mapped);
  if (spare > 0) {
    const size_t skip = (kHugePage - reinterpret_cast<uintptr_t>(data) % kHugePage) % kHugePage;
    data += skip;
    const size_t tail = RoundToPages(bytes);
    if (skip > 0) ::munmap(mapped, skip);
    if (tail < bytes + spare - skip) ::munmap(data + tail, bytes + spare - skip - tail);
    // Only a hint: huge pages reduce TLB misses.
    ::madvise(data, bytes, MADV_HUGEPAGE);
  }
  return std::make_unique<CpuBuffer>(data, bytes, std::move(fd));
}

StatusOr<std::unique_ptr<Buffer>> MapShared(UniqueFd memory) {
  BATON_ASSIGN_OR_RETURN(const std::span<std::byte> bytes, MapSharedMemory(memory, 1));
  return std::make_unique<CpuBuffer>(bytes.data(), bytes.size(), std::move(memory), Pages::kOthers);
}

Status CpuDevice::CopyIn(const Buffer& to, size_t offset, std::span<const std::byte> from) {
  BATON_RETURN_IF_ERROR(CheckRange(to, offset, from.size()));
  if (!from.empty()) std::memcpy(to.data() + offset, from.data(), from.size());
  return OkStatus();
}

Status CpuDevice::CopyOut(const Buffer& from, size_t offset, std::span<std::byte> to) {
  BATON_RETURN_IF_ERROR(CheckRange(from, offset, to.size()));
  if (!to.empty()) std::memcpy(to.data(), from.data() + offset, to.size());
  return OkStatus();
}

size_t CpuDevice::free_bytes() const {
  std::ifstream info("/proc/meminfo");
  std::string key;
  size_t kib = 0;
  std::string unit;
  while (info >> key >> kib) {
    if (key == "MemAvailable:") return kib * 1024;
    std::getline(info, unit);
  }
  return static_cast<size_t>(std::max(0L, ::sysconf(_SC_AVPHYS_PAGES))) *
         static_cast<size_t>(std::max(0L, ::sysconf(_SC_PAGESIZE)));
}

}  // namespace baton
