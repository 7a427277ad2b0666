#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace baton::cuda {

// The arguments of the kernel that computes the XXH3-64 of each part of granules of device memory
// (kernels/granule_checksum.h). BlockChecksums says how granules are divided.
struct ChecksumArgs {
  static constexpr size_t kMaxGranules = 256;

  const std::byte* base = nullptr;
  uint64_t bytes = 0;       // of each granule
  uint64_t* out = nullptr;  // [count][ChecksumParts(bytes)]; device or pinned memory
  uint32_t count = 0;
  uint64_t offsets[kMaxGranules] = {};  // [count]; from `base`
};

cudaError_t LaunchChecksums(const ChecksumArgs& args, cudaStream_t stream);

}  // namespace baton::cuda
