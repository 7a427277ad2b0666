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
#include "kernels/dma.h"

namespace baton::cuda {

// Checksums of one or more DmaQueue::Checksum under way. Granules that lie in one piece at aligned
// addresses are summed where they are; others are gathered first, and what the kernels do not take
// (BlockChecksums) is summed on the host. Owned by a queue; its thread.
class ChecksumTask final {
 public:
  // What it has room for: growing stops the device for a moment.
  static constexpr size_t kUsualGranules = 512;
  static constexpr size_t kUsualBytes = size_t{32} << 20;

  struct Request {
    uint64_t id = 0;
    const Buffer* of = nullptr;
    std::vector<ByteRange> ranges;
    uint64_t granule = 0;
    uint64_t bytes = 0;  // of the ranges
  };

  // With its kernels loaded.
  static StatusOr<std::unique_ptr<ChecksumTask>> Create(cudaStream_t stream);
  ~ChecksumTask();
  ChecksumTask(const ChecksumTask&) = delete;
  ChecksumTask& operator=(const ChecksumTask&) = delete;

  // Issues the work on the stream: requests of one buffer and one granule. Not before the last one
  // has finished.
  Status Start(std::span<const Request> requests);
  // cudaErrorNotReady while it is under way.
  cudaError_t Query() const { return cudaEventQuery(ended_); }
  cudaEvent_t ended() const { return ended_; }
  // Of each request, after Query gave cudaSuccess.
  std::vector<DmaDone> Take() const;
  // The same requests, ended by an error.
  std::vector<DmaDone> Fail(const Status& status) const;

 private:
  explicit ChecksumTask(cudaStream_t stream) : stream_(stream) {}
  Status Sum(const std::byte* base, std::span<const uint64_t> offsets);
  // Of the granule at this index, once the work is done.
  uint64_t Checksum(size_t granule) const;

  const cudaStream_t stream_;
  cudaEvent_t ended_ = nullptr;
  DeviceMemory gathered_;
  PinnedMemory host_;  // sums of the granules' parts, or bytes to be summed here
  std::vector<std::pair<uint64_t, size_t>> requests_;  // (id, granules)
  uint64_t granule_ = 0;
  bool on_host_ = false;
};

}  // namespace baton::cuda
