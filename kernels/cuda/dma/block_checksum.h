#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/base/status.h"
#include "kernels/cuda/device/pinned_memory.h"
#include "kernels/granule_checksum.h"

namespace baton::cuda {

// Checksums (kernels/granule_checksum.h) of many equally long granules of device memory at once.
// The device gives the XXH3-64 of each part, the host joins them. One thread.
class BlockChecksums final {
 public:
  // Of a granule's last part: XXH3 takes shorter input another way.
  static constexpr uint64_t kMinBytes = 241;
  static constexpr uint64_t kAlignment = 16;  // of addresses and sizes

  // Whether the device takes granules of `bytes` bytes.
  static bool Takes(uint64_t bytes);
  // Issues the sums of granules: ChecksumParts(bytes) of each one, in order, which are in `out`
  // (pinned memory) when the stream has come there, and which JoinChecksumParts makes its checksum.
  // Errors: as Compute.
  static Status Launch(const std::byte* base,
                       std::span<const uint64_t> offsets,
                       uint64_t bytes,
                       std::span<uint64_t> out,
                       cudaStream_t stream);
  // out[i] is the checksum of the `bytes` bytes at base + offsets[i]; waits for `stream`. Errors:
  // InvalidArgument when `bytes` is not a multiple of 16 or leaves a last part below kMinBytes,
  // or an address is not aligned to 16; ResourceExhausted.
  Status Compute(const std::byte* base,
                 std::span<const uint64_t> offsets,
                 uint64_t bytes,
                 std::span<uint64_t> out,
                 cudaStream_t stream);

 private:
  PinnedMemory parts_;
};

}  // namespace baton::cuda
