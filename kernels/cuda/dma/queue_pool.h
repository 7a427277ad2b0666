#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "common/base/status.h"
#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/dma/cuda_dma_queue.h"
#include "kernels/dma.h"

namespace baton::cuda {

// The queues of one device. They are reused and freed only with the pool, because freeing a queue
// when its peer leaves can deadlock: cudaFree and cudaFreeHost wait for all kernels of the device,
// and a receive of NCCL for another peer may wait for the thread that frees the queue. Thread-safe.
// Must outlive the queues that it lends.
class QueuePool final {
 public:
  explicit QueuePool(const CudaDevice& device) : device_(device) {}

  // Returns an idle queue. The destructor of the result waits for the work posted to the queue and
  // gives the queue back to the pool.
  // Errors: ResourceExhausted.
  StatusOr<std::unique_ptr<DmaQueue>> Lend();

 private:
  class LentQueue;

  const CudaDevice& device_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<CudaDmaQueue>> free_;
};

}  // namespace baton::cuda
