#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "common/base/status.h"
#include "kernels/device.h"

namespace baton::cuda {

// One NVIDIA GPU. Copies go through pinned memory on a stream of their own, so that they do not
// wait for kernels that run. Thread-safe.
class CudaDevice final : public Device {
 public:
  // `threads` fill pinned memory when weights are loaded. Errors: NotFound when there is no such
  // GPU or no driver (naming what the driver says), FailedPrecondition when the GPU is older than
  // sm_80 or the driver too old for this build.
  static StatusOr<std::unique_ptr<CudaDevice>> Open(int index, int threads = 1);
  ~CudaDevice() override;

  std::string name() const override;
  StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes, Sharing sharing) override;
  Status CopyIn(const Buffer& to, size_t offset, std::span<const std::byte> from) override;
  Status CopyOut(const Buffer& from, size_t offset, std::span<std::byte> to) override;
  size_t free_bytes() const override;

  // Fills `to` from `offset` with `bytes` bytes that `fill(start, out)` makes piece by piece in
  // pinned memory, on several threads at once, while earlier pieces travel. `unit` bytes are never
  // split.
  Status Stream(const Buffer& to,
                size_t offset,
                size_t bytes,
                size_t unit,
                const std::function<void(size_t start, std::span<std::byte> out)>& fill);

  int index() const { return index_; }
  int sm_count() const { return sm_count_; }
  // 90 for sm_90.
  int architecture() const { return architecture_; }
  // Makes this the current device of the calling thread.
  cudaError_t MakeCurrent() const { return cudaSetDevice(index_); }

 private:
  class Staging;
  CudaDevice() = default;
  // FailedPrecondition when other processes cannot map the memory.
  Status CheckExport(void* data, size_t size) const;

  int index_ = 0;
  int sm_count_ = 0;
  int architecture_ = 0;
  std::unique_ptr<Staging> staging_;
};

}  // namespace baton::cuda
