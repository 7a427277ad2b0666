#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "common/base/status.h"
#include "kernels/cuda/device/device_properties.h"
#include "kernels/device.h"

namespace baton::cuda {

// One NVIDIA GPU. Copies use pinned memory and a stream of their own, so that they do not wait for
// running kernels. Thread-safe.
class CudaDevice final : public Device {
 public:
  // `threads` threads fill pinned memory when weights are loaded. Errors: NotFound when there is no
  // such GPU or no driver (with the driver's message); FailedPrecondition when the driver is too
  // old for this build; those of ReadDeviceProperties.
  static StatusOr<std::unique_ptr<CudaDevice>> Open(int index, int threads = 1);
  ~CudaDevice() override;

  std::string name() const override;
  StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes, Sharing sharing) override;
  Status CopyIn(const Buffer& to, size_t offset, std::span<const std::byte> from) override;
  Status CopyOut(const Buffer& from, size_t offset, std::span<std::byte> to) override;
  size_t free_bytes() const override;

  // Fills `bytes` bytes of `to` from `offset` on. Several threads call `fill(start, out)`, which
  // writes the bytes from `start` on to pinned memory, while earlier parts are copied to the
  // device. A unit of `unit` bytes is never split between two calls.
  Status Stream(const Buffer& to,
                size_t offset,
                size_t bytes,
                size_t unit,
                const std::function<void(size_t start, std::span<std::byte> out)>& fill);

  int index() const { return index_; }
  const DeviceProperties& properties() const { return properties_; }
  // Makes this device the current one of the calling thread.
  cudaError_t MakeCurrent() const { return cudaSetDevice(index_); }

 private:
  class Staging;
  CudaDevice() = default;
  // Checks that other processes can map the memory. Errors: FailedPrecondition.
  Status CheckExport(void* data, size_t size) const;

  int index_ = 0;
  DeviceProperties properties_;
  std::unique_ptr<Staging> staging_;
};

}  // namespace baton::cuda
