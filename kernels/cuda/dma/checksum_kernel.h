#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace baton::cuda {

// Arguments of the kernel that computes the XXH3-64 of each part (kernels/granule_checksum.h) of
// granules of device memory; see BlockChecksums.
struct ChecksumArgs {
  static constexpr size_t kMaxGranules = 256;

  const std::byte* base = nullptr;
  uint64_t bytes = 0;       // of each granule
  uint64_t* out = nullptr;  // [count][ChecksumParts(bytes)]; may be pinned memory
  uint32_t count = 0;
  uint64_t offsets[kMaxGranules] = {};  // [count]; passed with the launch
};

cudaError_t LaunchChecksums(const ChecksumArgs& args, cudaStream_t stream);

}  // namespace baton::cuda
