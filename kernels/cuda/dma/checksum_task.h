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
#include "kernels/cuda/dma/outgrown_memory.h"
#include "kernels/dma.h"

namespace baton::cuda {

// The checksums of one or more calls of DmaQueue::Checksum, while they are computed. Granules that
// are contiguous at aligned addresses are read in place; other granules are gathered first.
// Granules of a size that the kernels cannot take (BlockChecksums::Takes) are copied to the host
// and hashed there. Owned by a queue, used on its thread.
class ChecksumTask final {
 public:
  // The initial room of a task. Growing allocates, which takes a moment.
  static constexpr size_t kUsualGranules = 512;
  static constexpr size_t kUsualBytes = size_t{32} << 20;

  struct Request {
    uint64_t id = 0;
    const Buffer* of = nullptr;
    std::vector<ByteRange> ranges;
    uint64_t granule = 0;
    uint64_t bytes = 0;  // of the ranges
  };

  // Makes a task and runs its kernels once, so that they are loaded.
  static StatusOr<std::unique_ptr<ChecksumTask>> Create(cudaStream_t stream);
  ~ChecksumTask();
  ChecksumTask(const ChecksumTask&) = delete;
  ChecksumTask& operator=(const ChecksumTask&) = delete;

  // Issues the work on the stream. All requests are of one buffer and one granule size. The work of
  // the last Start must have finished.
  Status Start(std::span<const Request> requests);
  // cudaErrorNotReady while the work runs.
  cudaError_t Query() const { return cudaEventQuery(ended_); }
  cudaEvent_t ended() const { return ended_; }
  // The results of each request, after Query returned cudaSuccess.
  std::vector<DmaDone> Take() const;
  // The same requests, each with the error `status`.
  std::vector<DmaDone> Fail(const Status& status) const;

 private:
  explicit ChecksumTask(cudaStream_t stream) : stream_(stream) {}
  Status Sum(const std::byte* base, std::span<const uint64_t> offsets);
  // The checksum of the granule with this index, once the work has finished.
  uint64_t Checksum(size_t granule) const;

  const cudaStream_t stream_;
  cudaEvent_t ended_ = nullptr;
  OutgrownMemory<DeviceMemory> gathered_;
  // Checksums of the granules' parts, or bytes to be hashed on the host.
  OutgrownMemory<PinnedMemory> host_;
  std::vector<std::pair<uint64_t, size_t>> requests_;  // (id, granules)
  uint64_t granule_ = 0;
  bool on_host_ = false;
};

}  // namespace baton::cuda
