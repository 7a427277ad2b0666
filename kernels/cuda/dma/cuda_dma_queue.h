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

// Copies and checksums of one GPU's memory. Copies run one after the other on one stream, checksums
// on a second; both streams have a lower priority than a step's. Host functions report watched
// completions on two further streams, so that no work waits for a host function. QueuePool lends
// queues as DmaQueue. Contract and threads: kernels/dma.h.
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

  // Makes the queue ready for its next user: waits for the work that was posted, drops its
  // completions, and opens a new wait_fd(), because the last user may still watch the old one.
  // Errors: the device's; then the queue must be destroyed.
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

  // A stream for work, and a stream for the host functions that report the work's completion.
  struct StreamPair {
    cudaStream_t work = nullptr;
    cudaStream_t notices = nullptr;
  };

  explicit CudaDmaQueue(const CudaDevice& device) : device_(device) {}
  Status Open();
  Status OpenEventFd();
  StatusOr<cudaEvent_t> TakeEvent();
  // Makes wait_fd() readable after the event `ended`, which was recorded on pair.work.
  cudaError_t NotifyAfter(const StreamPair& pair, cudaEvent_t ended);
  // Starts waiting checksums while there are free tasks. One task computes several requests.
  Status StartWaiting();
  void PollCopies();
  void PollChecksums();
  void Signal() const;

  const CudaDevice& device_;
  UniqueFd event_fd_;
  StreamPair copies_;
  StreamPair checksums_;
  std::vector<cudaEvent_t> free_events_;
  std::deque<PendingCopy> pending_;
  uint64_t batch_bytes_ = 0;  // of the next batch
  std::vector<std::unique_ptr<ChecksumTask>> free_tasks_;
  std::deque<PendingTask> tasks_;
  std::deque<ChecksumTask::Request> waiting_;  // until Poll, which joins them into tasks
  std::deque<DmaDone> done_;
};

}  // namespace baton::cuda
