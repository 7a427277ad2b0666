#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "kernels/cuda/block_checksum.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/dma.h"

namespace baton::cuda {

// Checksums of one DmaQueue::Checksum under way. Granules that lie in one piece at aligned
// addresses are summed where they are; others are gathered first, and what the kernels do not take
// (BlockChecksums) is summed on the host. Owned by a queue; its thread.
class ChecksumTask final {
 public:
  // With room for usual sizes, and with its kernels loaded: growing stops the device for a moment.
  static StatusOr<std::unique_ptr<ChecksumTask>> Create(cudaStream_t stream);
  ~ChecksumTask();
  ChecksumTask(const ChecksumTask&) = delete;
  ChecksumTask& operator=(const ChecksumTask&) = delete;

  // Issues the work on the stream. Not before the last one has finished.
  Status Start(uint64_t id, const Buffer& of, std::span<const ByteRange> ranges, uint64_t granule);
  // cudaErrorNotReady while it is under way.
  cudaError_t Query() const { return cudaEventQuery(ended_); }
  uint64_t id() const { return id_; }
  // After Query gave cudaSuccess.
  std::vector<uint64_t> Take() const;

 private:
  explicit ChecksumTask(cudaStream_t stream) : stream_(stream) {}
  Status Sum(const std::byte* base, std::span<const uint64_t> offsets);
  Status ReserveHost(size_t bytes);

  const cudaStream_t stream_;
  cudaEvent_t ended_ = nullptr;
  std::unique_ptr<BlockChecksums> checksums_;
  DeviceMemory gathered_;
  std::byte* host_ = nullptr;  // pinned: results, or bytes to be summed here
  size_t host_bytes_ = 0;
  uint64_t id_ = 0;
  uint64_t granule_ = 0;
  size_t count_ = 0;
  bool on_host_ = false;
};

}  // namespace baton::cuda
