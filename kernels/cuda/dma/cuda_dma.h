#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/device/device_memory.h"
#include "kernels/cuda/dma/queue_pool.h"
#include "kernels/cuda/exchange/nccl_pairs.h"
#include "kernels/dma.h"

namespace baton::cuda {

// One GPU's memory for KV transports: exported as CUDA IPC handles, copied by copy engines.
// Contract and threads: kernels/dma.h. The device must outlive this object.
class CudaDma final : public Dma {
 public:
  // Errors: ResourceExhausted.
  static StatusOr<std::unique_ptr<CudaDma>> Create(CudaDevice& device);

  StatusOr<std::string> Export(const Buffer& buffer) override;
  StatusOr<std::unique_ptr<Buffer>> Import(std::string_view exported) override;
  StatusOr<std::unique_ptr<Buffer>> AllocateStaging(size_t bytes) override;
  StatusOr<std::unique_ptr<DmaQueue>> MakeQueue() override { return queues_.Lend(); }
  StatusOr<std::string> PciAddress() const override;
  StatusOr<DmaBuf> ExportDmaBuf(const Buffer& buffer) override;
  Status FlushPeerWrites() override;
  StatusOr<PairExchange*> Pairs() override;

 private:
  explicit CudaDma(CudaDevice& device) : device_(device), queues_(device) {}
  // Reads up to 2 MiB of imported memory, because the driver sets up the connection at the first
  // copy.
  Status WarmUp(const Buffer& imported);

  CudaDevice& device_;
  QueuePool queues_;
  DeviceMemory scratch_;  // destination of the warm-up reads
  std::mutex pairs_mutex_;
  std::unique_ptr<NcclPairs> pairs_;  // made by the first call of Pairs
};

}  // namespace baton::cuda
