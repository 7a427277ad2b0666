#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "kernels/cuda/device/device_memory.h"
#include "kernels/cuda/device/pinned_memory.h"
#include "kernels/cuda/dma/grow_only_memory.h"
#include "kernels/dma.h"

namespace baton::cuda {

// Computes the checksums of one or more calls of DmaQueue::Checksum. The kernel reads granules that
// are contiguous at aligned addresses in place. Other granules are gathered first. Granules of a
// size that the kernel does not support (BlockChecksums::Supports) are copied to the host and
// hashed there. Owned by a queue; used on the queue's thread.
class ChecksumTask final {
 public:
  // Requests are batched into one task up to this size. A task has memory for this much from the
  // start; a larger request allocates more, which takes time.
  static constexpr size_t kBatchGranules = 512;
  static constexpr size_t kBatchBytes = size_t{32} << 20;

  struct Request {
    uint64_t id = 0;
    const Buffer* buffer = nullptr;
    std::vector<ByteRange> ranges;
    uint64_t granule = 0;
    uint64_t bytes = 0;  // of all ranges
  };

  // Creates a task and runs its kernel once, so that the kernel is loaded.
  static StatusOr<std::unique_ptr<ChecksumTask>> Create(cudaStream_t stream);
  ~ChecksumTask();
  ChecksumTask(const ChecksumTask&) = delete;
  ChecksumTask& operator=(const ChecksumTask&) = delete;

  // Issues the work of the requests on the stream. All requests must have the same buffer and
  // granule size. The work of the previous Start must have finished.
  Status Start(std::span<const Request> requests);
  // cudaErrorNotReady while the work runs.
  cudaError_t Query() const { return cudaEventQuery(ended_); }
  cudaEvent_t ended() const { return ended_; }
  // The results of the requests. Called after Query returned cudaSuccess.
  std::vector<DmaDone> Take() const;
  // The error `status` as the result of each request.
  std::vector<DmaDone> Fail(const Status& status) const;

 private:
  explicit ChecksumTask(cudaStream_t stream) : stream_(stream) {}
  // Issues the checksums of granules at these offsets, and the event `ended_`.
  Status IssueChecksums(const std::byte* base, std::span<const uint64_t> offsets);
  // The checksum of the granule with this index. Called after the work has finished.
  uint64_t Checksum(size_t granule) const;

  const cudaStream_t stream_;
  cudaEvent_t ended_ = nullptr;
  GrowOnlyMemory<DeviceMemory> gathered_;
  // The checksums of the parts, or the bytes that the host hashes.
  GrowOnlyMemory<PinnedMemory> host_;
  std::vector<std::pair<uint64_t, size_t>> requests_;  // (id, granules)
  uint64_t granule_ = 0;
  bool on_host_ = false;
};

}  // namespace baton::cuda
