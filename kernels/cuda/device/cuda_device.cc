#include "kernels/cuda/device/cuda_device.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <utility>

#include "common/base/check.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/thread_pool.h"

namespace baton::cuda {
namespace {

constexpr size_t kSlices = 64;  // parts that the threads of Stream fill of one staging buffer
constexpr size_t kExportUnit = size_t{2} << 20;

class CudaBuffer final : public Buffer {
 public:
  CudaBuffer(std::byte* data, size_t size) : data_(data), size_(size) {}
  ~CudaBuffer() override { cudaFree(data_); }
  CudaBuffer(const CudaBuffer&) = delete;
  CudaBuffer& operator=(const CudaBuffer&) = delete;

  MemoryKind kind() const override { return MemoryKind::kCuda; }
  std::byte* data() const override { return data_; }
  size_t size() const override { return size_; }
  int shared_fd() const override { return -1; }

 private:
  std::byte* data_;
  size_t size_;
};

double Gibibytes(size_t bytes) {
  return static_cast<double>(bytes) / (1 << 30);
}

// Checks that the driver supports the runtime of this build. CUDA's version numbers are
// 1000·major + 10·minor.
Status CheckDriver() {
  int driver = 0;
  int runtime = 0;
  BATON_CUDA_RETURN_IF_ERROR(cudaDriverGetVersion(&driver));
  BATON_CUDA_RETURN_IF_ERROR(cudaRuntimeGetVersion(&runtime));
  if (driver == 0) {
    return Status(StatusCode::kNotFound, "there is no NVIDIA driver on this machine");
  }
  // Within a major version an older driver works as well.
  if (driver / 1000 >= runtime / 1000) return OkStatus();
  return MakeStatus(StatusCode::kFailedPrecondition,
                    "the NVIDIA driver is too old: it supports CUDA {}.{}; this build needs {}.0",
                    driver / 1000,
                    driver % 1000 / 10,
                    runtime / 1000);
}

}  // namespace

// The pinned staging buffers for copies to and from the device, the stream of these copies, and the
// threads that fill the buffers. One thread alone copies at a fraction of the bus's rate.
class CudaDevice::Staging {
 public:
  static constexpr size_t kBufferBytes = size_t{16} << 20;
  static constexpr size_t kBuffers = 3;

  struct StagingBuffer {
    std::byte* data = nullptr;
    cudaEvent_t copied = nullptr;
  };

  explicit Staging(int threads) : pool_(std::clamp(threads, 1, kMaxThreads)) {}

  Status Open() {
    BATON_CUDA_RETURN_IF_ERROR(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    for (StagingBuffer& buffer : buffers_) {
      BATON_CUDA_RETURN_IF_ERROR(
          cudaMallocHost(reinterpret_cast<void**>(&buffer.data), kBufferBytes));
      BATON_CUDA_RETURN_IF_ERROR(cudaEventCreateWithFlags(&buffer.copied, cudaEventDisableTiming));
    }
    return OkStatus();
  }

  ~Staging() {
    for (const StagingBuffer& buffer : buffers_) {
      if (buffer.copied != nullptr) cudaEventDestroy(buffer.copied);
      cudaFreeHost(buffer.data);
    }
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  // The next buffer in turn. Waits until its last copy has finished.
  StatusOr<StagingBuffer> Next() {
    StagingBuffer& buffer = buffers_[turn_++ % kBuffers];
    BATON_CUDA_RETURN_IF_ERROR(cudaEventSynchronize(buffer.copied));
    return buffer;
  }

  cudaStream_t stream() const { return stream_; }
  std::mutex& mutex() { return mutex_; }
  ThreadPool& pool() { return pool_; }

 private:
  static constexpr int kMaxThreads = 16;

  std::mutex mutex_;
  ThreadPool pool_;
  cudaStream_t stream_ = nullptr;
  std::array<StagingBuffer, kBuffers> buffers_;
  size_t turn_ = 0;
};

StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Open(int index, int threads) {
  BATON_RETURN_IF_ERROR(CheckDriver());
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || index < 0 || index >= count) {
    return MakeStatus(StatusCode::kNotFound,
                      "there is no device cuda:{}: this machine has {} NVIDIA GPUs{}",
                      index,
                      error == cudaSuccess ? count : 0,
                      error == cudaSuccess
                          ? std::string()
                          : fmt::format(" that can be used ({})", cudaGetErrorString(error)));
  }
  std::unique_ptr<CudaDevice> device(new CudaDevice());
  device->index_ = index;
  BATON_CUDA_RETURN_IF_ERROR(device->MakeCurrent());
  BATON_ASSIGN_OR_RETURN(device->properties_, ReadDeviceProperties());
  device->staging_ = std::make_unique<Staging>(threads);
  BATON_RETURN_IF_ERROR(device->staging_->Open());
  return device;
}

CudaDevice::~CudaDevice() = default;

std::string CudaDevice::name() const {
  return fmt::format("cuda:{}", index_);
}

StatusOr<std::unique_ptr<Buffer>> CudaDevice::Allocate(size_t bytes, Sharing sharing) {
  BATON_CUDA_RETURN_IF_ERROR(MakeCurrent());
  void* data = nullptr;
  // The driver places several small allocations in one larger one. A process that imports one of
  // them would be able to access them all.
  const size_t unit = sharing == Sharing::kShared ? kExportUnit : 1;
  const size_t size = (std::max<size_t>(bytes, 1) + unit - 1) / unit * unit;
  const cudaError_t error = cudaMalloc(&data, size);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // clears it
    return MakeStatus(StatusCode::kResourceExhausted,
                      "{} cannot allocate {:.2f} GiB of memory: {:.2f} GiB are free",
                      name(),
                      Gibibytes(size),
                      Gibibytes(free_bytes()));
  }
  BATON_CUDA_RETURN_IF_ERROR(error);
  auto buffer = std::make_unique<CudaBuffer>(static_cast<std::byte*>(data), bytes);
  if (sharing == Sharing::kShared) BATON_RETURN_IF_ERROR(CheckExport(data, size));
  BATON_CUDA_RETURN_IF_ERROR(cudaMemset(data, 0, size));
  BATON_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(cudaStreamLegacy));
  return buffer;
}

Status CudaDevice::CheckExport(void* data, size_t size) const {
  cudaIpcMemHandle_t handle;
  const cudaError_t error = cudaIpcGetMemHandle(&handle, data);
  if (error == cudaSuccess) return OkStatus();
  cudaGetLastError();  // clears it
  return MakeStatus(StatusCode::kFailedPrecondition,
                    "{} cannot share {:.2f} GiB of memory with other processes: {} ({}); KV memory "
                    "needs CUDA IPC",
                    name(),
                    Gibibytes(size),
                    cudaGetErrorName(error),
                    cudaGetErrorString(error));
}

Status CudaDevice::Stream(const Buffer& to,
                          size_t offset,
                          size_t bytes,
                          size_t unit,
                          const std::function<void(size_t start, std::span<std::byte> out)>& fill) {
  BATON_CHECK(
      offset + bytes <= to.size(), "copy of {} bytes to {} of {}", bytes, offset, to.size());
  BATON_CHECK(unit > 0 && unit <= Staging::kBufferBytes, "a unit of {} bytes", unit);
  std::lock_guard lock(staging_->mutex());
  BATON_CUDA_RETURN_IF_ERROR(MakeCurrent());
  const size_t most = Staging::kBufferBytes / unit * unit;
  for (size_t start = 0; start < bytes; start += most) {
    const size_t count = std::min(most, bytes - start);
    BATON_ASSIGN_OR_RETURN(const Staging::StagingBuffer buffer, staging_->Next());
    // Equal shares of whole units. There are more shares than threads, because some shares take
    // longer than others.
    const size_t slice = (count / unit / kSlices + 1) * unit;
    const auto slices = static_cast<int64_t>((count + slice - 1) / slice);
    staging_->pool().Run(slices, [&](int64_t item, int /*thread*/) {
      const size_t at = static_cast<size_t>(item) * slice;
      fill(start + at, {buffer.data + at, std::min(slice, count - at)});
    });
    BATON_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(to.data() + offset + start,
                                               buffer.data,
                                               count,
                                               cudaMemcpyHostToDevice,
                                               staging_->stream()));
    BATON_CUDA_RETURN_IF_ERROR(cudaEventRecord(buffer.copied, staging_->stream()));
  }
  BATON_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(staging_->stream()));
  return OkStatus();
}

Status CudaDevice::CopyIn(const Buffer& to, size_t offset, std::span<const std::byte> from) {
  return Stream(to, offset, from.size(), 1, [&](size_t start, std::span<std::byte> out) {
    std::memcpy(out.data(), from.data() + start, out.size());
  });
}

Status CudaDevice::CopyOut(const Buffer& from, size_t offset, std::span<std::byte> to) {
  BATON_CHECK(offset + to.size() <= from.size(),
              "copy of {} bytes from {} of {}",
              to.size(),
              offset,
              from.size());
  std::lock_guard lock(staging_->mutex());
  BATON_CUDA_RETURN_IF_ERROR(MakeCurrent());
  for (size_t start = 0; start < to.size(); start += Staging::kBufferBytes) {
    const size_t count = std::min(Staging::kBufferBytes, to.size() - start);
    BATON_ASSIGN_OR_RETURN(const Staging::StagingBuffer buffer, staging_->Next());
    BATON_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(buffer.data,
                                               from.data() + offset + start,
                                               count,
                                               cudaMemcpyDeviceToHost,
                                               staging_->stream()));
    BATON_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(staging_->stream()));
    std::memcpy(to.data() + start, buffer.data, count);
  }
  return OkStatus();
}

size_t CudaDevice::free_bytes() const {
  size_t free = 0;
  size_t total = 0;
  if (MakeCurrent() != cudaSuccess || cudaMemGetInfo(&free, &total) != cudaSuccess) return 0;
  return free;
}

}  // namespace baton::cuda
