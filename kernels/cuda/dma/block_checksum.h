#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/base/status.h"
#include "kernels/cuda/device/pinned_memory.h"
#include "kernels/granule_checksum.h"

namespace baton::cuda {

// Checksums (kernels/granule_checksum.h) of many granules of device memory, all of one size, at
// once. The device computes the XXH3-64 of each part; the host joins them. Used by one thread.
class BlockChecksums final {
 public:
  // The minimum size of a granule's last part: XXH3 uses another algorithm for shorter input.
  static constexpr uint64_t kMinBytes = 241;
  static constexpr uint64_t kAlignment = 16;  // bytes; of addresses and sizes

  // Whether the device can compute checksums of granules of `bytes` bytes.
  static bool Supports(uint64_t bytes);
  // Issues the checksums of the parts of all granules, ChecksumParts(bytes) for each granule. They
  // are in `out` (pinned memory), in order, once the stream has run this work; JoinChecksumParts
  // turns those of one granule into its checksum. Errors: as Compute.
  static Status Launch(const std::byte* base,
                       std::span<const uint64_t> offsets,
                       uint64_t bytes,
                       std::span<uint64_t> out,
                       cudaStream_t stream);
  // out[i] is the checksum of the `bytes` bytes at base + offsets[i]. Waits for `stream`. Errors:
  // InvalidArgument when `bytes` is not a multiple of 16 or its last part is below kMinBytes, or
  // when an address is not aligned to 16 bytes; ResourceExhausted.
  Status Compute(const std::byte* base,
                 std::span<const uint64_t> offsets,
                 uint64_t bytes,
                 std::span<uint64_t> out,
                 cudaStream_t stream);

 private:
  PinnedMemory parts_;
};

}  // namespace baton::cuda
