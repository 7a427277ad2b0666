#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "common/base/unique_fd.h"
#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/dma/checksum_task.h"
#include "kernels/dma.h"

namespace baton::cuda {

// Copies and checksums the memory of one GPU. Copies run one after the other on one stream, and
// checksums on a second stream. Both streams have a lower priority than the stream of steps. Host
// functions on two more streams report the completions that a caller watches, so that no copy waits
// for a host function. QueuePool lends these queues as DmaQueues. Contract and threads:
// kernels/dma.h.
class CudaDmaQueue final {
 public:
  // Errors: ResourceExhausted.
  static StatusOr<std::unique_ptr<CudaDmaQueue>> Create(const CudaDevice& device);
  ~CudaDmaQueue();
  CudaDmaQueue(const CudaDmaQueue&) = delete;

  // As for DmaQueue.
  int wait_fd() const { return event_fd_.get(); }
  Status Copy(uint64_t id, const Buffer& from, const Buffer& to, std::span<const CopyRun> runs);
  Status Checksum(uint64_t id,
                  const Buffer& of,
                  std::span<const ByteRange> ranges,
                  uint64_t granule);
  size_t Poll(std::span<DmaDone> done);
  void WatchEnds();

  // Prepares the queue for its next user. Waits for all posted work, drops the completions, and
  // opens a new wait_fd(), because the previous user may still watch the old one. Errors: those of
  // the device; the queue must then be destroyed.
  Status Reset();

 private:
  struct PendingCopy {
    uint64_t id = 0;
    cudaEvent_t ended = nullptr;
    bool is_watched = false;
  };

  struct PendingTask {
    std::unique_ptr<ChecksumTask> task;
    bool is_watched = false;
  };

  // A stream for work, and a stream for the host functions that report the completion of the work.
  struct StreamPair {
    cudaStream_t work = nullptr;
    cudaStream_t callbacks = nullptr;
  };

  explicit CudaDmaQueue(const CudaDevice& device) : device_(device) {}
  Status Open();
  Status OpenEventFd();
  StatusOr<cudaEvent_t> TakeEvent();
  // Makes wait_fd() readable after the event `ended`, which is recorded on pair.work.
  cudaError_t SignalAfter(const StreamPair& pair, cudaEvent_t ended);
  // Starts queued checksums while there are free tasks. One task computes several requests.
  Status StartQueuedChecksums();
  void PollCopies();
  void PollChecksums();
  // Makes wait_fd() readable now.
  void Signal() const;

  const CudaDevice& device_;
  UniqueFd event_fd_;
  StreamPair copies_;
  StreamPair checksums_;
  std::vector<cudaEvent_t> free_events_;
  std::deque<PendingCopy> pending_copies_;
  uint64_t batch_bytes_ = 0;  // the size of the next batch of copies
  std::vector<std::unique_ptr<ChecksumTask>> free_tasks_;
  std::deque<PendingTask> running_tasks_;
  std::deque<ChecksumTask::Request> queued_checksums_;  // Poll batches them into tasks
  std::deque<DmaDone> done_;
};

}  // namespace baton::cuda
