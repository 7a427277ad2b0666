#pragma once

#include <cstdint>

namespace baton::cuda::testing {

// A number that depends on `key` alone. Over many keys, the numbers are approximately normally
// distributed.
__device__ inline float NumberOf(uint64_t key) {
  // MurmurHash3's finalizer (Appleby, public domain).
  key ^= key >> 33;
  key *= 0xff51afd7ed558ccdull;
  key ^= key >> 33;
  key *= 0xc4ceb9fe1a85ec53ull;
  key ^= key >> 33;
  const auto h = static_cast<uint32_t>(key);
  const uint32_t sum = (h & 255) + (h >> 8 & 255) + (h >> 16 & 255) + (h >> 24);
  return (static_cast<float>(sum) - 510.0f) / 147.8f;
}

}  // namespace baton::cuda::testing
