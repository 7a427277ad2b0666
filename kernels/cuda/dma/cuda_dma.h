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

// Gives KV transports access to the memory of one GPU. Exports the memory as CUDA IPC handles and
// copies it with copy engines and SMs. Contract and threads: kernels/dma.h. The device must outlive
// this object.
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
  // Reads up to 2 MiB of imported memory. The driver sets up the connection at the first copy.
  Status WarmUp(const Buffer& imported);

  CudaDevice& device_;
  QueuePool queues_;
  DeviceMemory scratch_;  // the destination of WarmUp's copies
  std::mutex pairs_mutex_;
  std::unique_ptr<NcclPairs> pairs_;  // created by the first call of Pairs
};

}  // namespace baton::cuda
