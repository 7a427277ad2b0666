#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace baton::cuda {

// The XXH3-64 of `count` pieces of device memory; see BlockChecksums.
struct ChecksumArgs {
  const std::byte* base = nullptr;
  const uint64_t* offsets = nullptr;  // [count]
  int32_t count = 0;
  uint64_t bytes = 0;        // of each piece
  uint64_t* sums = nullptr;  // scratch: [count][ChecksumSums(bytes)]
  uint64_t* out = nullptr;   // [count]
};

// Numbers of scratch that a piece takes: eight for each 1,024 bytes that XXH3 joins in order, for
// the rest behind them, and for the last stripe.
inline uint64_t ChecksumSums(uint64_t bytes) {
  return 8 * ((bytes - 1) / 1024 + 2);
}

cudaError_t LaunchChecksums(const ChecksumArgs& args, cudaStream_t stream);

}  // namespace baton::cuda
