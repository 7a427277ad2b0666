#pragma once

#include <memory>
#include <string>
#include <utility>

#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/exchange/nccl_library.h"
#include "kernels/pair_exchange.h"
#include "kernels/staging_pool.h"

namespace baton::cuda {

// NCCL communicators of two ranks each: the receiver is rank 0, the sender is rank 1. Each
// communicator has a stream, a thread that issues its posts, and a few thread blocks, which occupy
// SMs while a post waits for the peer. The communicators are non-blocking. They always end with
// ncclCommAbort, because ncclCommDestroy waits for the peer. NCCL refuses two ranks on one GPU.
// Staging memory is reused and freed only with this object, because freeing it earlier can
// deadlock: cudaFree waits for all kernels of the device, and a receive of another pair may wait
// for the thread that calls cudaFree. Contract and threads: PairExchange.
class NcclPairs final : public PairExchange {
 public:
  // `device` must outlive this object; `device_id` is DeviceId().
  NcclPairs(const NcclLibrary& nccl, CudaDevice& device, std::string device_id)
      : nccl_(nccl), device_(device), device_id_(std::move(device_id)), staging_(device) {}

  StatusOr<std::string> DeviceId() const override { return device_id_; }
  StatusOr<std::string> MakeId() override;
  StatusOr<std::unique_ptr<PairCommunicator>> Make(
      const PairCommunicator::Options& options) override;

 private:
  const NcclLibrary& nccl_;
  const CudaDevice& device_;
  const std::string device_id_;
  StagingPool staging_;
};

}  // namespace baton::cuda
