#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "common/base/status.h"
#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/dma/cuda_dma_queue.h"
#include "kernels/dma.h"

namespace baton::cuda {

// The queues of one device, which are used again and freed only at the end. cudaFree and
// cudaFreeHost wait for all kernels of the device: freed when a peer leaves, a queue's memory would
// make its thread wait for the receives of NCCL that run for other peers, and those may wait for
// this thread. Thread-safe. Must outlive the queues that it lends.
class QueuePool final {
 public:
  explicit QueuePool(const CudaDevice& device) : device_(device) {}

  // A queue without work; its destructor waits for the work posted to it and gives the queue back.
  // Errors: ResourceExhausted.
  StatusOr<std::unique_ptr<DmaQueue>> Lend();

 private:
  class LentQueue;

  const CudaDevice& device_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<CudaDmaQueue>> free_;
};

}  // namespace baton::cuda
