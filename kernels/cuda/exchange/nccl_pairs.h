#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/exchange/nccl_library.h"
#include "kernels/pair_exchange.h"
#include "kernels/staging_pool.h"

namespace baton::cuda {

// Communicators of NCCL with two ranks: the receiving end is rank 0, the sending end rank 1. Each
// has a stream of its own, a thread that issues its posts, and at most a few thread blocks, which
// occupy SMs while posts wait for the peer. They are never blocking, and always end with
// ncclCommAbort, because an orderly end waits for the peer. The destructor waits up to 10 s for
// aborts. NCCL refuses two ranks on one GPU. Staging memory is used again and freed only at the
// end: cudaFree waits for all kernels of the device, among them receives of other pairs, which may
// wait for the thread that frees.
// Contract and threads: PairExchange.
class NcclPairs final : public PairExchange {
 public:
  // `device` must outlive this object; `device_id` is DeviceId().
  NcclPairs(const NcclLibrary& nccl, CudaDevice& device, std::string device_id)
      : nccl_(nccl), device_(device), device_id_(std::move(device_id)), staging_(device) {}

  StatusOr<std::string> DeviceId() const override { return device_id_; }
  StatusOr<std::string> MakeId() override;
  StatusOr<std::unique_ptr<PairCommunicator>> Make(
      const PairCommunicator::Options& options) override;
  AbortedPairs& aborted() override { return aborted_; }

 private:
  // Longer than an abort takes whose peer is alive or gone.
  static constexpr Duration kLongestAbort = std::chrono::seconds(10);

  const NcclLibrary& nccl_;
  const CudaDevice& device_;
  const std::string device_id_;
  StagingPool staging_;
  AbortedPairs aborted_{kLongestAbort};
};

}  // namespace baton::cuda
