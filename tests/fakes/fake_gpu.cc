#include "tests/fakes/fake_gpu.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/take_front.h"
#include "common/base/unique_fd.h"
#include "kernels/granule_checksum.h"
#include "tests/fakes/host_buffer.h"

namespace baton {
namespace {

std::byte* Map(size_t bytes, int protection, int fd) {
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
  void* data = ::mmap(nullptr, bytes, protection, flags, fd, 0);
  BATON_CHECK(data != MAP_FAILED, "cannot map memory for a test");
  return static_cast<std::byte*>(data);
}

class FakeGpuBuffer final : public Buffer {
 public:
  // `running`: FakePairs::running() of the device.
  FakeGpuBuffer(UniqueFd fd,
                size_t bytes,
                bool is_own,
                std::shared_ptr<const std::atomic<int>> running)
      : running_(std::move(running)),
        fd_(std::move(fd)),
        size_(bytes),
        is_own_(is_own),
        shown_(Map(bytes, PROT_NONE, -1)),
        bytes_(Map(bytes, PROT_READ | PROT_WRITE, fd_.get())) {}
  ~FakeGpuBuffer() override {
    BATON_CHECK(!is_own_ || *running_ == 0,
                "memory is freed while {} exchanges run: cudaFree would wait for them, and so for "
                "the peer",
                running_->load());
    ::munmap(shown_, size_);
    ::munmap(bytes_, size_);
  }
  MemoryKind kind() const override { return MemoryKind::kCuda; }
  std::byte* data() const override { return shown_; }
  size_t size() const override { return size_; }
  int shared_fd() const override { return -1; }

  std::byte* bytes() const { return bytes_; }
  int fd() const { return fd_.get(); }
  bool is_own() const { return is_own_; }

 private:
  const std::shared_ptr<const std::atomic<int>> running_;
  const UniqueFd fd_;
  const size_t size_;
  const bool is_own_;
  std::byte* const shown_;
  std::byte* const bytes_;
};

std::byte* BytesOf(const Buffer& buffer) {
  const auto* ours = dynamic_cast<const FakeGpuBuffer*>(&buffer);
  return ours != nullptr ? ours->bytes() : buffer.data();
}

}  // namespace

class FakeGpu::Queue final : public DmaQueue {
 public:
  explicit Queue(FakeGpu& gpu) : gpu_(gpu), event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    thread_ = std::jthread([this] { Run(); });
  }
  ~Queue() override {
    {
      std::lock_guard lock(gpu_.mutex_);
      ending_ = true;
    }
    gpu_.changed_.notify_all();
  }

  int wait_fd() const override { return event_.get(); }

  Status Copy(uint64_t id,
              const Buffer& from,
              const Buffer& to,
              std::span<const CopyRun> runs) override {
    for (const CopyRun& run : runs) {
      BATON_CHECK(run.source + run.bytes <= from.size() && run.destination + run.bytes <= to.size(),
                  "a copy beyond the end of its buffer");
    }
    return Post([this, id, &from, &to, copies = std::vector<CopyRun>(runs.begin(), runs.end())] {
      std::lock_guard lock(gpu_.memory_mutex_);
      for (const CopyRun& run : copies) {
        std::memcpy(BytesOf(to) + run.destination, BytesOf(from) + run.source, run.bytes);
      }
      if (gpu_.corrupts_ && !copies.empty()) {
        BytesOf(to)[copies[0].destination] ^= std::byte{1};
      }
      return DmaDone{id, OkStatus(), {}};
    });
  }

  Status Checksum(uint64_t id,
                  const Buffer& of,
                  std::span<const ByteRange> ranges,
                  uint64_t granule) override {
    return Post([this, id, &of, granule, of_ranges = std::vector(ranges.begin(), ranges.end())] {
      std::lock_guard lock(gpu_.memory_mutex_);
      std::vector<std::byte> bytes;
      for (const ByteRange& range : of_ranges) {
        const std::byte* from = BytesOf(of) + range.offset;
        bytes.insert(bytes.end(), from, from + range.bytes);
      }
      DmaDone done{id, OkStatus(), {}};
      for (size_t at = 0; at < bytes.size(); at += granule) {
        done.checksums.push_back(GranuleChecksum(std::span(bytes).subspan(at, granule)));
      }
      return done;
    });
  }

  size_t Poll(std::span<DmaDone> done) override {
    uint64_t value = 0;
    (void)!::read(event_.get(), &value, sizeof(value));
    std::lock_guard lock(gpu_.mutex_);
    is_watched_ = false;
    return TakeFront(done_, done);
  }

  void WatchEnds() override {
    std::lock_guard lock(gpu_.mutex_);
    is_watched_ = true;
    if (!done_.empty()) Signal();
  }

 private:
  Status Post(std::function<DmaDone()> work) {
    {
      std::lock_guard lock(gpu_.mutex_);
      work_.push_back(std::move(work));
      ++gpu_.waiting_;
    }
    gpu_.changed_.notify_all();
    return OkStatus();
  }

  void Run() {
    std::unique_lock lock(gpu_.mutex_);
    while (true) {
      gpu_.changed_.wait(lock, [&] { return ending_ || (!work_.empty() && !gpu_.is_held_); });
      if (work_.empty()) return;
      const std::function<DmaDone()> work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      DmaDone done = work();
      if (gpu_.is_lost_) {
        done.status = MakeStatus(StatusCode::kUnavailable, "the device is lost to this process");
      }
      lock.lock();
      done_.push_back(std::move(done));
      --gpu_.waiting_;
      ++gpu_.ended_;
      if (is_watched_) Signal();
    }
  }

  void Signal() const {
    const uint64_t one = 1;
    (void)!::write(event_.get(), &one, sizeof(one));
  }

  FakeGpu& gpu_;
  const UniqueFd event_;
  bool ending_ = false;
  bool is_watched_ = false;
  std::deque<std::function<DmaDone()>> work_;
  std::deque<DmaDone> done_;
  std::jthread thread_;  // the last member, because the thread uses the others
};

FakeGpu::~FakeGpu() = default;

StatusOr<std::unique_ptr<Buffer>> FakeGpu::Allocate(size_t bytes, Sharing sharing) {
  UniqueFd fd;
  if (sharing == Sharing::kShared) {
    fd.Reset(::memfd_create("baton-fake-gpu", MFD_CLOEXEC));
    BATON_CHECK(::ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0,
                "cannot allocate memory for a test");
  }
  return std::make_unique<FakeGpuBuffer>(std::move(fd), bytes, true, pairs_.running());
}

Status FakeGpu::CopyIn(const Buffer& to, size_t offset, std::span<const std::byte> from) {
  BATON_CHECK(offset + from.size() <= to.size(), "a copy beyond the end of its buffer");
  std::lock_guard lock(memory_mutex_);
  std::memcpy(BytesOf(to) + offset, from.data(), from.size());
  return OkStatus();
}

Status FakeGpu::CopyOut(const Buffer& from, size_t offset, std::span<std::byte> to) {
  BATON_CHECK(offset + to.size() <= from.size(), "a copy beyond the end of its buffer");
  std::lock_guard lock(memory_mutex_);
  std::memcpy(to.data(), BytesOf(from) + offset, to.size());
  return OkStatus();
}

StatusOr<std::string> FakeGpu::Export(const Buffer& buffer) {
  const auto* ours = dynamic_cast<const FakeGpuBuffer*>(&buffer);
  if (ours == nullptr || !ours->is_own() || ours->fd() < 0)
    return InvalidArgument("the buffer is not shared memory of this device");
  return fmt::format("/proc/{}/fd/{} {}", ::getpid(), ours->fd(), ours->size());
}

StatusOr<std::unique_ptr<Buffer>> FakeGpu::Import(std::string_view exported) {
  if (is_isolated_) return MakeStatus(StatusCode::kUnavailable, "no way to the peer's GPU");
  char path[64];
  size_t bytes = 0;
  if (std::sscanf(std::string(exported).c_str(), "%63s %zu", path, &bytes) != 2) {
    return InvalidArgument("'{}' is not an export", exported);
  }
  UniqueFd fd(::open(path, O_RDWR | O_CLOEXEC));
  if (!fd.valid()) return MakeStatus(StatusCode::kUnavailable, "cannot open {}", path);
  return std::make_unique<FakeGpuBuffer>(std::move(fd), bytes, false, pairs_.running());
}

StatusOr<std::unique_ptr<Buffer>> FakeGpu::AllocateStaging(size_t bytes) {
  return std::make_unique<HostBuffer>(bytes);
}

StatusOr<DmaBuf> FakeGpu::ExportDmaBuf(const Buffer& buffer) {
  const auto* ours = dynamic_cast<const FakeGpuBuffer*>(&buffer);
  if (ours == nullptr || !has_dma_bufs_) {
    return MakeStatus(StatusCode::kUnavailable, "the buffer has no dma-buf");
  }
  return DmaBuf{UniqueFd(::fcntl(ours->fd(), F_DUPFD_CLOEXEC, 0)), 0};
}

Status FakeGpu::FlushPeerWrites() {
  ++flushes_;
  return flush_;
}

StatusOr<PairExchange*> FakeGpu::Pairs() {
  if (!has_pairs_) return MakeStatus(StatusCode::kNotFound, "NCCL is not installed");
  return &pairs_;
}

StatusOr<std::unique_ptr<DmaQueue>> FakeGpu::MakeQueue() {
  return std::make_unique<Queue>(*this);
}

void FakeGpu::Hold() {
  std::lock_guard lock(mutex_);
  is_held_ = true;
}

void FakeGpu::Release() {
  {
    std::lock_guard lock(mutex_);
    is_held_ = false;
  }
  changed_.notify_all();
}

}  // namespace baton
