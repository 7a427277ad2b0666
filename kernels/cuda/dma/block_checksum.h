#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/base/status.h"
#include "kernels/cuda/device/pinned_memory.h"
#include "kernels/granule_checksum.h"

namespace baton::cuda {

// Computes the checksums (kernels/granule_checksum.h) of many granules of device memory at once.
// All granules have one size. The device computes the XXH3-64 of each part, and the host joins the
// parts. One thread.
class BlockChecksums final {
 public:
  // The minimum size of the last part of a granule. XXH3 uses another algorithm for shorter input.
  static constexpr uint64_t kMinBytes = 241;
  // Addresses and sizes are multiples of this many bytes.
  static constexpr uint64_t kAlignment = 16;

  // Whether the device can compute checksums of granules of `bytes` bytes.
  static bool Supports(uint64_t bytes);
  // Issues a kernel that writes the checksums of all parts to `out`, in order: ChecksumParts(bytes)
  // parts for each granule. `out` is pinned memory. JoinChecksumParts computes the checksum of a
  // granule from its parts. Errors: those of Compute.
  static Status Launch(const std::byte* base,
                       std::span<const uint64_t> offsets,
                       uint64_t bytes,
                       std::span<uint64_t> out,
                       cudaStream_t stream);
  // Writes the checksum of the `bytes` bytes at base + offsets[i] to out[i]. Waits for `stream`.
  // Errors: InvalidArgument if an address or `bytes` is not a multiple of kAlignment, or if the
  // last part of a granule is smaller than kMinBytes; ResourceExhausted.
  Status Compute(const std::byte* base,
                 std::span<const uint64_t> offsets,
                 uint64_t bytes,
                 std::span<uint64_t> out,
                 cudaStream_t stream);

 private:
  PinnedMemory parts_;
};

}  // namespace baton::cuda
