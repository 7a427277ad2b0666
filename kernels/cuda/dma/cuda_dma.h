#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/device/device_memory.h"
#include "kernels/dma.h"

namespace baton::cuda {

// One GPU's memory for KV transports: exported through CUDA IPC handles, copied by copy engines.
// Contract and threads: kernels/dma.h. The device outlives it.
class CudaDma final : public Dma {
 public:
  // Errors: ResourceExhausted.
  static StatusOr<std::unique_ptr<CudaDma>> Create(CudaDevice& device);

  StatusOr<std::string> Export(const Buffer& buffer) override;
  StatusOr<std::unique_ptr<Buffer>> Import(std::string_view exported) override;
  StatusOr<std::unique_ptr<Buffer>> AllocateStaging(size_t bytes) override;
  StatusOr<std::unique_ptr<DmaQueue>> MakeQueue() override;

 private:
  explicit CudaDma(CudaDevice& device) : device_(device) {}
  // Reads a block's worth of imported memory, which sets up the way to it.
  Status WarmUp(const Buffer& imported);

  CudaDevice& device_;
  DeviceMemory scratch_;  // where warm-up reads land; of no other use
};

}  // namespace baton::cuda
